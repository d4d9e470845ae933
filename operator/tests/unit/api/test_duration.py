import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.api import duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("50ms", 50),
        ("70s", 70_000),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        ("1h2m3s4ms", 3_723_004),
        ("1s1s", 2_000),
        ("99999h", 359_996_400_000),
    ],
)
def test_durations_are_understood(text: str, milliseconds: int) -> None:
    assert duration.milliseconds(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "s", "-1s", "+1s", "1.5s", "1 s", "1s ", "1s\n", "1d", "1us", "100000s"),
        *("1m1m1m1m1m", "\N{ARABIC-INDIC DIGIT ONE}s", "1S", "1e3s"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(duration.DurationError):
        duration.milliseconds(text)


def test_seconds() -> None:
    assert duration.seconds("1500ms") == 1.5
    assert duration.whole_seconds("1500ms") == 2
    assert duration.whole_seconds("2s") == 2


@given(st.integers(0, 99_999 * 3_600_000))
def test_canonical_text_means_the_same(milliseconds: int) -> None:
    text = duration.format_milliseconds(milliseconds)
    assert duration.milliseconds(text) == milliseconds
    assert duration.format_milliseconds(duration.milliseconds(text)) == text


@settings(max_examples=50)
@given(st.from_regex(duration.PATTERN, fullmatch=True))
def test_what_the_schema_lets_through_is_understood(text: str) -> None:
    assert duration.milliseconds(text.removesuffix("\n")) >= 0


@given(st.text(max_size=30))
def test_hostile_text_is_parsed_or_refused_never_a_crash(text: str) -> None:
    with contextlib.suppress(duration.DurationError):
        duration.milliseconds(text)


def test_negative_time_has_no_text() -> None:
    with pytest.raises(duration.DurationError, match="less than nothing"):
        duration.format_milliseconds(-1)
