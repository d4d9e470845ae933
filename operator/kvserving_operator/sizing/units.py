"""Numbers with the units that people write: 86 Gbit/s, 10.76 GB/s, 48.4KB, 330ms, 52.2k. Pure.

Nothing is guessed: GB is 10^9 and GiB 2^30, and a number without a unit is taken only by a flag
whose name has the unit (``bare``).
"""

import math
import re
from collections.abc import Callable
from typing import Final

_NUMBER: Final = re.compile(
    r"\s*((?:[0-9]{1,15}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:[eE][+-]?[0-9]{1,2})?)\s*(.*?)\s*\Z",
    re.ASCII,
)
_DECIMAL: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SECONDS: Final = {
    "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0
}  # fmt: skip
BYTES_HELP: Final = "B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024)"
RATE_HELP: Final = "GB/s, GiB/s, MB/s … or Gbit/s, Mbit/s"
SECONDS_HELP: Final = "ms, s, m, h, d"


class UnitError(ValueError):
    """A text that is no number of the wanted unit; says what is."""


def count(text: str) -> float:
    """A plain number; k, M and G are allowed behind it: ``52.2k`` tokens a second."""
    number, suffix = _split(text)
    if suffix not in _DECIMAL:
        raise UnitError(f"{text!r}: write a number, for example 52200 or 52.2k")
    return number * _DECIMAL[suffix]


def size(text: str) -> float:
    """Bytes."""
    number, suffix = _split(text)
    factor = _bytes(suffix)
    if factor is None:
        raise UnitError(f"{text!r}: write bytes with a unit: {BYTES_HELP}")
    return number * factor


def rate(text: str) -> float:
    """Bytes a second; bits are divided by eight."""
    number, suffix = _split(text)
    unit = suffix.removesuffix("/s") if suffix.endswith("/s") else suffix.removesuffix("ps")
    bits = unit.endswith(("bit", "b"))
    scale = {**_DECIMAL, **_BINARY}.get(unit.removesuffix("bit").removesuffix("b"))
    factor: float | None = None
    if unit != suffix and bits:
        factor = None if scale is None else scale / 8
    elif suffix.endswith("/s"):
        factor = _bytes(unit)
    if factor is None:
        raise UnitError(f"{text!r}: write bytes or bits a second with a unit: {RATE_HELP}")
    return number * factor


def seconds(text: str) -> float:
    """Seconds."""
    number, suffix = _split(text)
    if suffix not in _SECONDS:
        raise UnitError(f"{text!r}: write a time with a unit: {SECONDS_HELP}")
    return number * _SECONDS[suffix]


def bare(parse: Callable[[str], float]) -> Callable[[str], float]:
    """``parse`` that takes a number without a unit as bytes or seconds."""

    def parsed(text: str) -> float:
        number, suffix = _split(text)
        return parse(text) if suffix else number

    return parsed


def share(text: str) -> float:
    """A share from 0 to 1; ``80%`` is 0.8."""
    number, suffix = _split(text)
    if suffix not in {"", "%"}:
        raise UnitError(f"{text!r}: write a share from 0 to 1, or percent: 0.8 or 80%")
    value = number / 100 if suffix else number
    if not 0 <= value <= 1:
        raise UnitError(f"{text!r}: write a share from 0 to 1, or percent: 0.8 or 80%")
    return value


def _split(text: str) -> tuple[float, str]:
    match = _NUMBER.match(text) if len(text) <= 40 else None
    if match is None:
        raise UnitError(f"{text[:40]!r}: is no number ≥ 0")
    number = float(match[1])
    if not math.isfinite(number):
        raise UnitError(f"{text[:40]!r}: is too large")
    return number, match[2]


def _bytes(suffix: str) -> int | None:
    """Bytes of a unit; it must end with B, so that 48K is not taken for either of two sizes."""
    if not suffix.endswith("B"):
        return None
    scale = suffix.removesuffix("B")
    return {**_DECIMAL, **_BINARY}.get(scale)


def as_bytes(amount: float) -> str:
    """Bytes as people read them, in powers of 1024: ``715 GiB``."""
    return _scaled(amount, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def as_rate(amount: float) -> str:
    """Bytes a second in powers of 1000, as networks are sold: ``2.53 GB/s``."""
    return _scaled(amount, 1000, ("B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"))


def as_seconds(amount: float) -> str:
    """A time as people read it."""
    if not math.isfinite(amount):
        return "for ever"
    for unit, factor in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if amount >= 2 * factor:
            return f"{amount / factor:.3g} {unit}"
    return f"{amount * 1000:.3g} ms" if amount < 0.1 else f"{amount:.3g} s"


def as_tokens(amount: float) -> str:
    """Tokens to three digits, or never."""
    if not math.isfinite(amount):
        return "never"
    return f"{float(f'{amount:.3g}'):,.0f}"


def _scaled(amount: float, step: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if amount < step:
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= step
    return f"{amount:.3g} {units[-1]}"
