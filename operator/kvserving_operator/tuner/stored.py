"""The tuner's state as data for the status, and back. Pure.

What comes back was in a status that anybody with the right to write it may have changed: what does
not fit is left out, and the tuner goes on from less.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from kvserving_operator.tuner.model import (
    HISTORY,
    Entry,
    Knob,
    Reason,
    State,
    Trial,
    Value,
    Verdict,
)

_T = TypeVar("_T")
_PARTS: Final = ("R", "s", "B", "te", "tw")
_DIGITS: Final = 6
MOST_TEXT: Final = 8192
"""Characters of a state as text: what does not fit of its history is left out, oldest first."""


def to_data(state: State) -> dict[str, Any]:
    """``state`` as JSON data; numbers with 6 digits, times in whole seconds.

    Never rounded up: a time in ``status.tuning`` is cut, too, and by it a successor knows what it
    has in its own history already.
    """
    return {
        "inForce": _values(state.in_force),
        "turned": {knob.value: math.floor(at) for knob, at in state.turned.items()},
        "recommended": _values(state.recommended),
        "asked": {knob.value: count for knob, count in state.asked.items()},
        "failures": {knob.value: count for knob, count in state.failures.items()},
        "decided": {
            knob.value: [_short(value), math.floor(at)]
            for knob, (value, at) in state.decided.items()
        },
        "probed": None if state.probed is None else math.floor(state.probed),
        "trial": None if state.trial is None else _trial(state.trial),
        "history": [_entry(entry) for entry in state.history],
    }


def to_text(state: State) -> str | None:
    """``state`` as one text of at most ``MOST_TEXT`` characters that changes with decisions alone.

    Left out is what every look changes: a new operator has to be asked twice again, and takes the
    tier for probed when it began. None for a state in which nothing was decided yet.
    """
    kept = replace(state, asked={}, probed=None)
    if kept == State():
        return None
    while True:
        text = json.dumps(to_data(kept), separators=(",", ":"))
        if len(text) <= MOST_TEXT or not kept.history:
            return text
        kept = replace(kept, history=kept.history[1:])


def from_text(text: str | None) -> State:
    """The state that ``to_text`` made into this, as far as it is that."""
    try:
        return from_data(json.loads(text) if text and len(text) <= MOST_TEXT else None)
    except (ValueError, RecursionError):
        return State()


def _values(values: Mapping[Knob, Value]) -> dict[str, Any]:
    return {knob.value: _value(value) for knob, value in values.items()}


def _value(value: Value | None) -> Any:
    if isinstance(value, tuple):
        return {name: _short(part) for name, part in zip(_PARTS, value, strict=True)}
    return _short(value) if isinstance(value, float) else value


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "knob": trial.knob.value,
        "since": math.floor(trial.since),
        "before": _value(trial.before),
        "cost": None if trial.cost is None else _short(trial.cost),
        "busy": None if trial.busy is None else _short(trial.busy),
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "at": math.floor(entry.at),
        "knob": entry.knob.value,
        "before": _value(entry.before),
        "after": _value(entry.after),
        "reason": entry.reason.value,
        "numbers": {name: _short(value) for name, value in entry.numbers.items()},
        "predicted": _short(entry.predicted),
        "observed": None if entry.observed is None else _short(entry.observed),
        "verdict": entry.verdict.value,
    }


def from_data(data: object) -> State:
    """The state that ``to_data`` made into this, as far as it is that."""
    if not isinstance(data, Mapping):
        return State()
    entries = [_read_entry(item) for item in _items(data.get("history"))[-HISTORY:]]
    return State(
        in_force=_read_values(data.get("inForce")),
        turned=_by_knob(data.get("turned"), _number),
        recommended=_read_values(data.get("recommended")),
        asked=_counts(data.get("asked")),
        failures=_counts(data.get("failures")),
        decided=_by_knob(data.get("decided"), _read_decided),
        probed=_number(data.get("probed")),
        trial=_read_trial(data.get("trial")),
        history=tuple(entry for entry in entries if entry is not None),
    )


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_values(data: object) -> dict[Knob, Value]:
    return _by_knob(data, _read_value)


def _counts(data: object) -> dict[Knob, int]:
    numbers = _by_knob(data, _number)
    return {knob: int(value) for knob, value in numbers.items() if 0 <= value <= HISTORY}


def _by_knob(data: object, read: Any) -> dict[Knob, Any]:
    if not isinstance(data, Mapping):
        return {}
    found = {knob: read(data.get(knob.value)) for knob in Knob}
    return {knob: value for knob, value in found.items() if value is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -1e18 < value < 1e18 or not math.isfinite(value):
        return None
    return float(value)


def _read_value(value: object) -> Value | None:
    if isinstance(value, str):
        return value[:64]
    if isinstance(value, Mapping):
        parts = [_number(value.get(name)) for name in _PARTS]
        rate, size, bandwidth, engine, request = parts
        if rate is None or size is None or bandwidth is None or engine is None or request is None:
            return None
        return rate, size, bandwidth, engine, request
    return _number(value)


def _read_decided(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    decided, at = map(_number, value)
    return None if decided is None or at is None else (decided, at)


def _member(kind: type[_T], value: object) -> _T | None:
    try:
        return kind(value)  # type: ignore[call-arg]
    except ValueError:
        return None


def _read_trial(data: object) -> Trial | None:
    if not isinstance(data, Mapping):
        return None
    knob, since = _member(Knob, data.get("knob")), _number(data.get("since"))
    if knob is None or since is None:
        return None
    return Trial(
        knob=knob,
        since=since,
        before=_read_value(data.get("before")),
        cost=_number(data.get("cost")),
        busy=_number(data.get("busy")),
    )


def _read_entry(data: object) -> Entry | None:
    if not isinstance(data, Mapping):
        return None
    knob, reason = _member(Knob, data.get("knob")), _member(Reason, data.get("reason"))
    at, after = _number(data.get("at")), _read_value(data.get("after"))
    verdict = _member(Verdict, data.get("verdict"))
    if knob is None or reason is None or at is None or after is None or verdict is None:
        return None
    numbers = data.get("numbers")
    named = numbers.items() if isinstance(numbers, Mapping) else ()
    read = {str(name)[:64]: _number(value) for name, value in list(named)[:16]}
    return Entry(
        at=at,
        knob=knob,
        before=_read_value(data.get("before")),
        after=after,
        reason=reason,
        numbers={name: value for name, value in read.items() if value is not None},
        predicted=_number(data.get("predicted")) or 0.0,
        observed=_number(data.get("observed")),
        verdict=verdict,
    )
