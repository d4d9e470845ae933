"""What `PUT /v1/tuning` takes, checked (pure).

The body is one JSON object of at most 4 KB:

| key | value | goes to |
| --- | --- | --- |
| `mode` | `Auto`, `Async`, `Sync` or `Bypass` | the sharded store |
| `minTokens` | whole number ≥ 0: shorter hits are recomputed | the sharded store |
| `model` | `{"R", "s", "B", "te", "tw"}` (tokens/s, bytes, bytes/s, s, s) | the sharded store |
| `hotPercent` | whole number, 0 to 100: HOT's share of the pool | GraniKV |

The store replaces all its settings by what comes, so `mode` and `minTokens` always travel together,
pinned ones too, and a `model` that is left out or null is taken
away. `hotPercent` may come alone; left out
it stays as it is. Unknown keys, keys given twice, numbers that are none (NaN, infinite, text, true)
or that cannot be, and an empty object are refused with the key and what to send instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

MAX_BYTES = 4096
MODES = ("Auto", "Async", "Sync", "Bypass")
# Beyond any prompt, and what 32 bits hold.
MOST_TOKENS = 2**31 - 1
# Beyond any rate, size or time that is measured here.
MOST = 1e15

BODY = "(body)"
_STORE = ("mode", "minTokens", "model")
_KEYS = (*_STORE, "hotPercent")
# Whether 0 is refused: times may be nothing, rates and sizes divide.
_POSITIVE = {"R": True, "s": True, "B": True, "te": False, "tw": False}


class InvalidError(Exception):
    """What came cannot be put in force; `remedy` says what to send instead."""

    def __init__(self, field: str, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}")
        self.field = field
        self.remedy = remedy


@dataclass(frozen=True)
class Tuning:
    """The settings for each control port, as that port takes them; None: nothing is sent there."""

    store: Mapping[str, object] | None
    hot: Mapping[str, object] | None


def parse(content: bytes) -> Tuning:
    """The settings of a body.

    Raises:
        InvalidError: With the first key that is wrong.
    """
    if len(content) > MAX_BYTES:
        raise InvalidError(BODY, f"send at most {MAX_BYTES} bytes")
    body = _object(content)
    for name in body:
        if name not in _KEYS:
            raise InvalidError(name[:64], "is unknown; known are " + ", ".join(_KEYS))
    if not body:
        raise InvalidError(BODY, "send mode and minTokens, or hotPercent")
    store = _store(body) if any(name in body for name in _STORE) else None
    hot = {"hotPercent": _percent(body["hotPercent"])} if "hotPercent" in body else None
    return Tuning(store, hot)


def _object(content: bytes) -> dict[str, object]:
    try:
        body = json.loads(content, parse_constant=_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InvalidError(BODY, "send one JSON object")
    return body


def _constant(text: str) -> float:
    raise InvalidError(BODY, f"{text} is no number of JSON; leave out what is not known")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidError(BODY, "send every key once")
    return found


def _store(body: Mapping[str, object]) -> dict[str, object]:
    for name in ("mode", "minTokens"):
        if name not in body:
            remedy = "is missing; the store replaces all its settings, so send mode and minTokens"
            raise InvalidError(name, remedy)
    if body["mode"] not in MODES:
        raise InvalidError("mode", "send one of " + ", ".join(MODES))
    least = _whole("minTokens", body["minTokens"], MOST_TOKENS)
    settings = {"mode": body["mode"], "minTokens": least}
    model = body.get("model")
    return settings if model is None else {**settings, "model": _model(model)}


def _model(given: object) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise InvalidError("model", "send an object with R, s, B, te and tw, or leave it out")
    for name in given:
        if name not in _POSITIVE:
            raise InvalidError(f"model.{name[:64]}", "is unknown; known are R, s, B, te, tw")
    return {name: _model_number(name, given.get(name)) for name in _POSITIVE}


def _model_number(name: str, value: object) -> float:
    positive = _POSITIVE[name]
    remedy = f"send a number {'> 0' if positive else '≥ 0'}, in tokens, bytes and seconds"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(f"model.{name}", remedy)
    # NaN compares as false; an int too long for a float is compared before it is made one.
    if not 0 <= value <= MOST or (positive and value == 0):
        raise InvalidError(f"model.{name}", remedy)
    return float(value)


def _percent(value: object) -> int:
    return _whole("hotPercent", value, 100)


def _whole(name: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidError(name, f"send a whole number from 0 to {most}")
    return value
