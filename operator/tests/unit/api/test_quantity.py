import contextlib
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.api import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        (3, 3),
        ("1Ki", 1024),
        ("1k", 1000),
        ("1.5Gi", 1610612736),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 1 << 60),
        (".5Ki", 512),
        ("5.", 5),
        ("+7", 7),
        ("-7", -7),
        ("50m", Fraction(1, 20)),
        ("1u", Fraction(1, 10**6)),
        ("1n", Fraction(1, 10**9)),
    ],
)
def test_the_grammar_of_kubernetes_is_understood(text: str | int, value: Fraction | int) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1\n", "Gi", "1GiB", "1 Gi", "0x10", "1e", "1e999", "--1", "1,5", "1K"),
        *("\N{ARABIC-INDIC DIGIT ONE}", "NaN", "inf", "1" * 33),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(quantity.QuantityError):
        quantity.parse(text)


@given(st.integers(0, 2**62))
def test_format_is_exact(count: int) -> None:
    assert quantity.to_bytes(quantity.format_bytes(count)) == count


@given(st.integers(0, 2**20), st.sampled_from(["", "Ki", "Mi", "Gi", "Ti", "k", "M", "G"]))
def test_format_is_the_shortest_binary_text(number: int, suffix: str) -> None:
    text = quantity.format_bytes(quantity.to_bytes(f"{number}{suffix}"))
    assert quantity.format_bytes(quantity.to_bytes(text)) == text
    if suffix.endswith("i") and number:
        assert len(text) <= len(f"{number}{suffix}")


@given(st.decimals(0, 10**6, places=4), st.sampled_from(["", "Ki", "Gi", "m", "u", "M"]))
def test_bytes_are_rounded_up(number: Decimal, suffix: str) -> None:
    text = f"{number:f}{suffix}"
    exact, count = quantity.parse(text), quantity.to_bytes(text)
    assert count - 1 < exact <= count


@given(st.text(max_size=40))
def test_hostile_text_is_parsed_or_refused_never_a_crash(text: str) -> None:
    with contextlib.suppress(quantity.QuantityError):
        quantity.parse(text)


@settings(max_examples=50)
@given(st.from_regex(quantity.BYTES_PATTERN, fullmatch=True))
def test_what_the_schema_lets_through_is_a_whole_number_of_bytes(text: str) -> None:
    assert quantity.to_bytes(text.removesuffix("\n")) >= 0


def test_negative_bytes_have_no_text() -> None:
    with pytest.raises(quantity.QuantityError, match="less than nothing"):
        quantity.format_bytes(-1)
