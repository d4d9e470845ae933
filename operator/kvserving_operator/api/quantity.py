"""Kubernetes resource quantities: exact parsing, byte counts, canonical binary text. Pure."""

import re
from fractions import Fraction
from typing import Final

MAX_LENGTH: Final = 32
BYTES_PATTERN: Final = r"^[0-9]{1,15}(\.[0-9]{1,6})?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"
"""Byte counts as the API takes them: no sign, no exponent, no milli-bytes."""

_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# \Z, not $: Python's $ would also match before a trailing newline.
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,2}))?\Z",
    re.ASCII,
)


class QuantityError(ValueError):
    """The text is no Kubernetes quantity."""


def parse(value: str | int) -> Fraction:
    """The exact number that a quantity of core/v1 stands for (``"1.5Gi"``, ``"50m"``, ``2``)."""
    if isinstance(value, int):
        return Fraction(value)
    match = _QUANTITY.match(value) if len(value) <= MAX_LENGTH else None
    if match is None:
        raise QuantityError(f"{value[:MAX_LENGTH]!r} is not a Kubernetes quantity")
    number = Fraction(match["number"])
    if suffix := match["suffix"]:
        factor = Fraction(2) ** _BINARY[suffix] if suffix in _BINARY else _power(_DECIMAL[suffix])
        number *= factor
    elif exponent := match["exponent"]:
        number *= _power(int(exponent))
    return -number if match["sign"] == "-" else number


def to_bytes(value: str | int) -> int:
    """The quantity in whole bytes, rounded up as Kubernetes rounds."""
    number = parse(value)
    return -(-number.numerator // number.denominator)


def format_bytes(count: int) -> str:
    """The shortest exact binary text for ``count`` bytes: ``1610612736`` is ``"1536Mi"``."""
    if count < 0:
        raise QuantityError(f"{count} bytes are less than nothing")
    for suffix, shift in reversed(_BINARY.items()):
        if count and count % (1 << shift) == 0:
            return f"{count >> shift}{suffix}"
    return str(count)


def _power(exponent: int) -> Fraction:
    return Fraction(10) ** exponent
