from __future__ import annotations

import gzip
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_agent import series
from kvserving_agent.exposition import MAX_BOUNDS, Scanner
from kvserving_agent.latency import MOST_BOUNDS, Buckets, histogram

CAPTURED = Path(__file__).parents[2] / "agent" / "captured" / "vllm-0.32.0-nixl-lmcache.txt.gz"


def test_buckets_that_nothing_is_in_are_left_out_at_both_ends_and_edges_are_told() -> None:
    page: Buckets = {"0.1": [0], "0.25": [2], "0.5": [2], "1.0": [5], "+Inf": [6]}
    found = histogram(page, [3.21])
    assert found is not None
    assert found.data() == {
        "count": 6,
        "sumSeconds": 3.21,
        "edges": [0.1, 0.25, 0.5, 1.0, None],
        "counts": [2, 0, 3, 1],
    }


def test_no_observation_has_no_edges() -> None:
    found = histogram({"0.1": [0], "+Inf": [0]}, [0.0])
    assert found is not None
    assert (found.edges, found.counts, found.count, found.seconds) == ((), (), 0, 0.0)


@given(st.lists(st.lists(st.sampled_from([0.05, 0.2, 0.3, 5.0]), max_size=20), min_size=1))
def test_series_add_up(ranks: list[list[float]]) -> None:
    bounds = [0.1, 0.25, 0.5, math.inf]
    page = {str(b): [sum(v <= b for v in rank) for rank in ranks] for b in bounds}
    together = sorted(value for rank in ranks for value in rank)
    found = histogram(page, [sum(rank) for rank in ranks])
    assert found is not None
    assert found.count == len(together)
    edges = [math.inf if edge is None else edge for edge in found.edges]
    assert len(found.counts) == max(0, len(edges) - 1)
    for (low, high), count in zip(pairwise(edges), found.counts, strict=True):
        assert count == sum(low < v <= high for v in together)
    assert not found.counts or (found.counts[0] and found.counts[-1])


@pytest.mark.parametrize(
    "page",
    [
        None,
        {},
        {"0.1": [1.0], "0.5": [2.0]},
        {"+Inf": [0.0], "inf": [7.0]},
        {"0.5": [1.0], "0.50": [2.0], "+Inf": [2.0]},
        {"0.1": [3.0], "+Inf": [2.0]},
        {"0.1": [1.0, 1.0], "+Inf": [2.0]},
        {"0.1": [math.nan], "+Inf": [2.0]},
        {"0.1": [None], "+Inf": [2.0]},
        {"0.1": [-1.0], "+Inf": [2.0]},
        {"0.1": [1.0], "+Inf": [1e300]},
        {"": [1.0], "+Inf": [2.0]},
        {"nan": [1.0], "+Inf": [2.0]},
        {"-1": [1.0], "+Inf": [2.0]},
        {**{str(i): [0.0] for i in range(MOST_BOUNDS)}, "+Inf": [2.0]},
    ],
)
def test_what_is_no_histogram_is_none(page: Buckets | None) -> None:
    assert histogram(page, [1.0]) is None


def test_an_unreadable_sum_costs_the_sum_alone() -> None:
    found = histogram({"+Inf": [2.0]}, [math.nan])
    assert found is not None
    assert (found.count, found.seconds) == (2, None)


def test_the_page_of_a_real_engine() -> None:
    families = series.LATENCIES["VLLM"]
    sums = [f"{family}_sum" for family in families.values()]
    scanner = Scanner(sums, families.values())
    scanner.feed(gzip.decompress(CAPTURED.read_bytes()))
    scanner.close()
    found = {
        name: histogram(scanner.buckets[family], scanner.values[f"{family}_sum"])
        for name, family in families.items()
    }
    assert {name: h and (h.edges, h.counts) for name, h in found.items()} == {
        "firstToken": ((0.1, 0.25), (1,)),
        "request": ((0.3, 0.5), (1,)),
        "interToken": ((0.01, 0.025, 0.05), (6, 1)),
    }
    assert found["firstToken"] is not None
    assert found["firstToken"].seconds == 0.242


def test_a_label_s_text_is_no_bound() -> None:
    scanner = Scanner([], ["a"])
    scanner.feed(b'a_bucket{m="x,le=\\"9\\"",le="1"} 3\na_bucket{m="x"} 4\na_bucketful{le="1"} 5\n')
    assert scanner.buckets == {"a": {"1": [3.0], "": [4.0]}}


def test_bounds_without_end_are_not_kept() -> None:
    scanner = Scanner([], ["a"])
    for i in range(1000):
        scanner.feed(f'a_bucket{{le="{i}"}} 1\n'.encode())
    assert len(scanner.buckets["a"]) == MAX_BOUNDS
    assert histogram(scanner.buckets["a"], None) is None
