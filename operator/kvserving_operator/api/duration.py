"""Durations of the API (``30m``, ``1h30m``, ``50ms``): parsing and canonical text. Pure.

The accepted text is a subset of Go's ``time.ParseDuration`` and thus of CEL's ``duration()``.
"""

import re
from typing import Final

MAX_LENGTH: Final = 28
PATTERN: Final = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"

_PART: Final = re.compile(r"([0-9]{1,5})(ms|h|m|s)", re.ASCII)
_WHOLE: Final = re.compile(r"(?:[0-9]{1,5}(?:ms|h|m|s)){1,4}\Z", re.ASCII)
_MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


class DurationError(ValueError):
    """The text is no duration of the API."""


def milliseconds(text: str) -> int:
    """The duration in whole milliseconds."""
    if len(text) > MAX_LENGTH or not _WHOLE.match(text):
        raise DurationError(f"{text[:MAX_LENGTH]!r} is not a duration such as 30m, 1h30m or 50ms")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text))


def seconds(text: str) -> float:
    """The duration in seconds."""
    return milliseconds(text) / 1000


def whole_seconds(text: str) -> int:
    """The duration in seconds, rounded up: for the integer fields of Kubernetes objects."""
    return -(-milliseconds(text) // 1000)


def format_milliseconds(count: int) -> str:
    """The canonical text of ``count`` milliseconds: ``5400000`` is ``"1h30m"``."""
    if count < 0:
        raise DurationError(f"{count} ms are less than nothing")
    parts = []
    rest = count
    for unit, size in _MILLISECONDS.items():
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"
