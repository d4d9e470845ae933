"""Facts of an engine from what its agent answers, and from anything else."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_agent import facts as agent_facts
from kvserving_agent import series
from kvserving_agent.facts import Answer, Sample, Snapshot
from kvserving_agent.identity import Source, StartId
from kvserving_agent.latency import Histogram
from kvserving_agent.lives import FIRST, End
from kvserving_agent.series import SGLANG_NUMBERS, STOCK_NUMBERS, VLLM_NUMBERS
from kvserving_agent.states import StoreState, rings
from kvserving_operator.fit import LOAD_FIELDS, STEP_FIELDS
from kvserving_operator.measure import (
    LATENCIES,
    MOST_BYTES,
    NUMBERS,
    Aged,
    ControlSettings,
    EngineFacts,
    Latency,
    parse,
    parse_body,
)

MODEL = {"R": 52_200.0, "s": 48_400.0, "B": 1.076e10, "te": 0.182, "tw": 0.148}
LOAD = [7, 16_390, 793_276_000, 0.01, 0.07, 0.07, 0.002, 0.18, 300, 1]
STATE = StoreState(
    at=100.0,
    start="s1",
    capabilities=("ShardedStore",),
    closed=None,
    settings={"mode": "Async", "minTokens": 512, "model": MODEL},
    since=1.7e9,
    counters={"busy_share": 0.25, "bytes_read": 4096.0},
    recent=rings(
        {
            "loads": {"fields": list(LOAD_FIELDS), "rows": [LOAD]},
            "steps": {"fields": list(STEP_FIELDS), "rows": [[3, 8192, 0.16]]},
        }
    ),
)
REQUESTS = Histogram((0.0, 0.1, 0.5, None), (2, 0, 1), 1.5)


def answer() -> dict[str, Any]:
    """What the agent really answers, three seconds after it looked."""
    known = Snapshot(
        start=StartId("e1", Source.SOCKET),
        health=Answer(100.0, good=True),
        version="0.32.0",
        sample=Sample(100.0, {"running": 2, "kvCacheUsage": 0.5}, {"request": REQUESTS}),
        store=STATE,
        hot=StoreState(
            at=100.0,
            start="g1",
            capabilities=("GraniKV",),
            closed=None,
            settings={"hotPercent": 10, "hotPercentWanted": 25},
            since=None,
            counters={"granikv_hot_used_slots": 64.0},
        ),
    )
    made: dict[str, Any] = json.loads(
        json.dumps(
            agent_facts.render(
                known,
                now=103.0,
                role="prefill",
                engine_type="VLLM",
                pod_uid="u",
                stale_after=20.0,
                table=VLLM_NUMBERS,
                latencies=series.PREFILL_LATENCIES,
                stores=True,
                hots=True,
                past=FIRST.followed(End(reason="SIGKILL", status=137, seconds=9.0, served=True)),
            )
        )
    )
    return made


def read(given: object) -> EngineFacts:
    found = parse("x-0", given)
    assert found is not None
    return found


def test_what_an_agent_answers_is_understood():
    found = parse_body("x-0", json.dumps(answer()).encode(), uid="u")
    assert found is not None
    assert (found.pod, found.role, found.start_id, found.version) == (
        "x-0",
        "prefill",
        "e1",
        "0.32.0",
    )
    assert (found.up, found.hung, found.lives) == (True, None, 2)
    assert found.capabilities == {"ShardedStore", "GraniKV"}
    assert found.numbers == {
        "running": Aged(value=2.0, age_seconds=3.0),
        "kvCacheUsage": Aged(value=0.5, age_seconds=3.0),
    }
    assert found.latencies == {
        "request": Latency(
            count=3, seconds=1.5, buckets=((0.0, 0.1, 2), (0.5, None, 1)), age_seconds=3.0
        )
    }
    assert found.scrape_age_seconds == 3.0


def test_so_are_the_ports_in_the_engine():
    found = read(answer())
    store, hot = found.store, found.hot
    assert store is not None
    assert hot is not None
    assert (store.start_id, store.closed, store.since, store.age_seconds) == (
        "s1",
        None,
        1.7e9,
        3.0,
    )
    assert store.settings == ControlSettings(
        mode="Async", min_tokens=512, model=(52_200.0, 48_400.0, 1.076e10, 0.182, 0.148)
    )
    assert store.counters == STATE.counters
    assert store.recent is not None
    assert [load.serial for load in store.recent.loads] == [7]
    assert [step.tokens for step in store.recent.steps] == [8192]
    assert (hot.start_id, hot.recent) == ("g1", None)
    assert hot.settings == ControlSettings(hot_percent=10, hot_percent_wanted=25)


def test_every_name_of_the_agent_is_known():
    assert {*VLLM_NUMBERS, *STOCK_NUMBERS} == set(NUMBERS)
    assert set(SGLANG_NUMBERS) <= set(NUMBERS)
    assert all(set(names) == set(LATENCIES) for names in series.LATENCIES.values())


def test_nothing_known_is_nothing_and_never_zero():
    found = read({"schema": 1})
    assert found == EngineFacts(pod="x-0")
    assert found.number("running") is None


@pytest.mark.parametrize(
    "odd", [None, True, "1", [], {}, math.nan, math.inf, -1.0, -(10**400), 10**400, 2.0**63]
)
def test_a_number_that_cannot_be_is_missing(odd: Any):
    made = answer()
    made["numbers"]["running"] = odd
    made["store"]["counters"]["busy_share"] = odd
    made["store"]["ageSeconds"] = odd
    made["latencies"]["request"]["count"] = odd
    found = read(made)
    assert set(found.numbers) == {"kvCacheUsage"}
    assert found.latencies == {}
    assert found.store is not None
    assert found.store.counters == {"bytes_read": 4096.0}
    assert found.store.age_seconds is None


def test_a_ratio_above_one_is_missing():
    made = answer()
    made["numbers"]["kvCacheUsage"] = 1.5
    assert set(read(made).numbers) == {"running"}


@pytest.mark.parametrize("odd", [None, True, "1", math.nan, -1.0, 10**400])
def test_what_is_of_no_age_is_missing(odd: Any):
    made = answer()
    made["scrape"]["ageSeconds"] = odd
    found = read(made)
    assert (found.numbers, found.latencies, found.scrape_age_seconds) == ({}, {}, None)


@pytest.mark.parametrize(
    ("edges", "counts"),
    [
        ([0, 0.5, 0.1, None], [2, 0, 1]),
        ([0, 0.1, 0.1, None], [2, 0, 1]),
        ([0, 0.1, 0.5], [2, 0, 1]),
        ([0, 0.1, 0.5, None, None], [2, 0, 1]),
        ([0, None, 0.5, None], [2, 0, 1]),
        ([0, 0.1, 0.5, None], [2, 0, 2]),
        ([0, 0.1, 0.5, None], [2, 0, 1.5]),
        ([0, 0.1, 0.5, None], [4, 0, -1]),
        ([-1, 0.1, 0.5, None], [2, 0, 1]),
        ([n / 8 for n in range(66)], [3, *(0 for _ in range(64))]),
        ([0], []),
        ("x", [2, 0, 1]),
        ([0, 0.1, 0.5, None], None),
    ],
)
def test_a_histogram_with_one_wrong_part_is_none_at_all(edges: Any, counts: Any):
    made = answer()
    made["latencies"]["request"] |= {"edges": edges, "counts": counts}
    assert read(made).latencies == {}


def test_a_histogram_of_nothing_is_one():
    made = answer()
    made["latencies"]["request"] = {"count": 0, "sumSeconds": 0, "edges": [], "counts": []}
    assert read(made).latencies["request"].buckets == ()


@pytest.mark.parametrize("uid", ["another", "", None, 7, ["u"]])
def test_what_is_not_said_of_the_pod_that_was_asked_is_none(uid: object):
    assert parse_body("x-0", json.dumps(answer() | {"podUid": uid}).encode(), uid="u") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[]",
        b"null",
        b'{"podUid": "u", "schema": 2}',
        b'{"podUid": "u", "schema": NaN}',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"podUid": "u", "schema": 1, "x": ' + b"9" * 5_000 + b"}",
        b'{"podUid": "u", "schema": 1, "x": "' + b"y" * MOST_BYTES + b'"}',
        b" " * 10_000_000,
    ],
    ids=lambda body: repr(body[:32]),
)
def test_what_is_no_answer_is_none(body: bytes):
    assert parse_body("x-0", body, uid="u") is None


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=200)
    | st.sampled_from([10**400, -(10**400), "s1", "prefill", 1e308]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
    ),
    max_leaves=20,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in JSON data."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


PLACES = [path for path in places(answer()) if path]


@given(st.lists(st.tuples(st.sampled_from(PLACES), ANYTHING), max_size=8))
def test_whatever_comes_is_read_and_all_that_is_read_can_be(changes: list[tuple[Any, Any]]):
    made = answer()
    for path, value in changes:
        inner: Any = made
        for key in path[:-1]:
            inner = inner[key] if _has(inner, key) else {}
        if _has(inner, path[-1]):
            inner[path[-1]] = value
    found = parse("x-0", made)
    assert found is None or all(_can_be(leaf) for leaf in _leaves(found))
    assert found is None or parse("x-0", made) == found


def _has(value: Any, key: Any) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


def _leaves(value: Any) -> Iterator[Any]:
    if is_dataclass(value):
        for each in fields(value):
            yield from _leaves(getattr(value, each.name))
    elif isinstance(value, dict):
        yield from (leaf for pair in value.items() for part in pair for leaf in _leaves(part))
    elif isinstance(value, tuple | frozenset):
        yield from (leaf for part in value for leaf in _leaves(part))
    else:
        yield value


def _can_be(leaf: Any) -> bool:
    if isinstance(leaf, str):
        return len(leaf) <= 80
    return leaf is None or isinstance(leaf, bool) or (math.isfinite(leaf) and leaf >= 0)


def test_the_largest_answer_keeps_little():
    """What is made to be large: all of 64 KiB in one place or another."""
    made = answer()
    row = [1.5] * len(LOAD_FIELDS)
    made["store"]["recent"]["loads"]["rows"] = [row] * 1_000
    made["store"]["counters"] = {f"c{n}": 0.5 for n in range(1_500)}
    made["capabilities"] = ["w" * 200, *(f"w{n}" for n in range(1_000))]
    found = read(made)
    size = sum(sys.getsizeof(leaf) for leaf in _leaves(found))
    assert size < MOST_BYTES, size
