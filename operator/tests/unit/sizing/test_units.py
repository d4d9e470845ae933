"""Units as people write them."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.sizing import units


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.count, "52.2k", 52_200),
        (units.count, "16390", 16_390),
        (units.count, ".5", 0.5),
        (units.count, "1e3", 1_000),
        (units.size, "48.4KB", 48_400),
        (units.size, "1 GiB", 2**30),
        (units.size, "1GB", 10**9),
        (units.size, "7B", 7),
        (units.rate, "10.76GB/s", 10.76e9),
        (units.rate, "1 GiB/s", 2**30),
        (units.rate, "25Gbit/s", 3.125e9),
        (units.rate, "25Gbps", 3.125e9),
        (units.rate, "8 Mb/s", 1e6),
        (units.seconds, "330ms", 0.33),
        (units.seconds, "10m", 600),
        (units.seconds, "2 h", 7_200),
        (units.share, "80%", 0.8),
        (units.share, "0.8", 0.8),
        (units.share, "1", 1),
    ],
)
def test_what_is_understood(parse: Callable[[str], float], text: str, value: float):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (units.count, "52.2KB"),
        (units.count, "-1"),
        (units.count, "nan"),
        (units.count, ""),
        (units.count, "9" * 60),
        (units.size, "48.4"),
        (units.size, "48.4K"),
        (units.size, "48.4Kb"),
        (units.rate, "10"),
        (units.rate, "10GB"),
        (units.rate, "10 GBs"),
        (units.rate, "10Xbit/s"),
        (units.seconds, "10"),
        (units.seconds, "10 minutes"),
        (units.share, "1.2"),
        (units.share, "120%"),
        (units.share, "0.8s"),
    ],
)
def test_what_is_not_understood_is_told_what_would_be(parse: Callable[[str], float], text: str):
    with pytest.raises(units.UnitError, match=r"write|no number"):
        parse(text)


def test_a_flag_whose_name_has_the_unit_takes_a_number_alone():
    assert units.bare(units.seconds)("0.33") == 0.33
    assert units.bare(units.seconds)("330ms") == 0.33
    with pytest.raises(units.UnitError):
        units.bare(units.size)("48.4K")


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (units.as_bytes, 744 * 2**30, "744 GiB"),
        (units.as_bytes, 1_010 * 2**30, "1010 GiB"),
        (units.as_bytes, 3, "3 B"),
        (units.as_rate, 2.5265e9, "2.53 GB/s"),
        (units.as_seconds, 0.0737, "73.7 ms"),
        (units.as_seconds, 0.4037, "0.404 s"),
        (units.as_seconds, 600, "10 min"),
        (units.as_seconds, float("inf"), "for ever"),
        (units.as_tokens, 22_511.8, "22,500"),
        (units.as_tokens, float("inf"), "never"),
    ],
)
def test_what_is_shown(show: Callable[[float], str], value: float, text: str):
    assert show(value) == text


@given(st.text(max_size=50))
def test_any_text_is_a_number_or_an_error_of_ours(text: str):
    for parse in (units.count, units.size, units.rate, units.seconds, units.share):
        with contextlib.suppress(units.UnitError):
            assert parse(text) >= 0
