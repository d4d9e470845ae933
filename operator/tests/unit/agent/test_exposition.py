from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_agent.exposition import MAX_LINE_BYTES, LineTooLongError, Scanner


def scan(page: str, *wanted: str) -> dict[str, list[float | None]]:
    scanner = Scanner(wanted)
    scanner.feed(page.encode())
    scanner.close()
    return scanner.values


def test_only_wanted_series_are_kept() -> None:
    page = "# HELP a text\n# TYPE a gauge\na 1\nb 2\nab 3\na_total 4\n"
    assert scan(page, "a") == {"a": [1.0]}


def test_every_series_of_a_name_has_an_entry() -> None:
    assert scan('a{engine="0"} 1\na{engine="1"} 2.5\n', "a") == {"a": [1.0, 2.5]}


def test_labels_may_hold_braces_blanks_and_quotes() -> None:
    page = 'a{m="x } 9 { y",n="q\\"}"} 7\n'
    assert scan(page, "a") == {"a": [7.0]}


def test_a_timestamp_after_the_value_is_not_the_value() -> None:
    assert scan('a{x="1"} 3 1700000000000\nb 4 1700000000000\n', "a", "b") == {
        "a": [3.0],
        "b": [4.0],
    }


def test_unreadable_is_kept_apart_from_absent() -> None:
    values = scan("a x\na{}\nb{} 1\n", "a", "b", "c")
    assert values == {"a": [None, None], "b": [1.0]}


def test_special_floats_are_read_as_they_are() -> None:
    (nan, inf, minus) = scan("a NaN\na +Inf\na -Inf\n", "a")["a"]
    assert nan is not None
    assert math.isnan(nan)
    assert (inf, minus) == (math.inf, -math.inf)


def test_a_page_that_ends_without_a_line_end_loses_nothing() -> None:
    assert scan("a 1", "a") == {"a": [1.0]}


@given(cuts=st.lists(st.integers(0, 60), max_size=8))
def test_the_cutting_of_a_page_does_not_matter(cuts: list[int]) -> None:
    page = b'# TYPE a counter\na{x="1"} 1\nother 5\na{x="2"} 2\nb 3\n'
    scanner = Scanner(["a", "b"])
    edges = sorted({0, len(page), *(cut for cut in cuts if cut < len(page))})
    for start, end in itertools.pairwise(edges):
        scanner.feed(page[start:end])
    scanner.close()
    assert scanner.values == {"a": [1.0, 2.0], "b": [3.0]}


@given(st.binary(max_size=2000))
def test_no_page_makes_it_raise(page: bytes) -> None:
    scanner = Scanner(["a"])
    scanner.feed(page)
    scanner.close()


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    scanner = Scanner(["a"])
    for _ in range(MAX_LINE_BYTES // 1024):
        scanner.feed(b"x" * 1024)
    with pytest.raises(LineTooLongError):
        scanner.feed(b"x")
