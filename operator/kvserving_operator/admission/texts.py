"""Values of strangers in messages: short, on one line, and without control characters. Pure."""

import json
from typing import Any, Final

_LIMIT: Final = 60


def printable(text: str) -> str:
    """``text`` with everything a terminal or a log would act upon written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def named(key: str) -> str:
    """A key for a path: as it is, on one line, cut where it is long."""
    return _cut(printable(key[: _LIMIT * 2]))


def shown(value: Any) -> str:
    """``value`` for a message, as JSON, cut where it is long; objects and lists by kind only."""
    if isinstance(value, str):
        text = json.dumps(value[: _LIMIT * 2], ensure_ascii=False)
    elif isinstance(value, bool | int | float | None):
        text = json.dumps(value)
    else:
        text = "a list" if isinstance(value, list) else "an object"
    return _cut(printable(text))


def _cut(text: str) -> str:
    return text if len(text) <= _LIMIT else f"{text[: _LIMIT - 1]}…"
