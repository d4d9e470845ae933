"""What the sharded store records of a load and of a step, and how much of it is believed. Pure.

The store's state has them as bounded rings, ``recent.loads`` and ``recent.steps``: names of fields
once, then rows. Whatever is not a plausible row is dropped and counted, never an error: facts come
over the network from a pod that may be broken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

LOAD_FIELDS: Final = (
    "serial",
    "tokens",
    "bytes",
    "probeSeconds",
    "fetchSeconds",
    "servedSeconds",
    "noticeSeconds",
    "stepSeconds",
    "stepTokens",
    "stepLoads",
)
"""Fields of a load, in the store's order."""
STEP_FIELDS: Final = ("serial", "tokens", "seconds")
"""Fields of a step without a load."""
STEP_TOKENS: Final = 4096
"""Fewer computed tokens say nothing of R: a step over a tail of hundreds takes as long as one over
thousands, and R would look six times too small."""

_MOST_ROWS: Final = 1024
"""Rows of one ring that are looked at: no store keeps as many."""
_MOST_SECONDS: Final = 3600.0
_DIGITS: Final = 9
"""Of seconds: no timer tells less than a nanosecond, and squares of what is written with less
(1e-200) leave the range of a float on one side or the other."""
_MOST_TOKENS: Final = 1e8
_MOST_BYTES: Final = 1e15
_MOST_SERIAL: Final = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One load that brought all it was asked for."""

    serial: int
    """Grows by one with each load of this start."""
    tokens: int
    """Tokens that were loaded."""
    bytes_read: int
    """Bytes that came from the tier, over all ranks; the rest was in local memory."""
    probe_seconds: float
    """From the question to all ranks until the decision."""
    fetch_seconds: float
    """From the decision until the last rank had its bytes, the wait for earlier loads included."""
    served_seconds: float
    """The part of it in which the tier worked for this load: from its own begin or the end of the
    load before it, whichever is later. Over any time these add up to the time the tier was busy."""
    notice_seconds: float | None
    """From the last byte until the engine began the step, None while it was busy with another."""
    step_seconds: float
    """The step that put it into the engine's KV and computed the tail."""
    step_tokens: int
    """Tokens that this step computed."""
    step_loads: int
    """Loads of this step, ≥ 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step that computed at least ``STEP_TOKENS`` tokens and loaded nothing."""

    serial: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Both rings of one state, oldest first, and how many rows could not be believed."""

    loads: tuple[LoadRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    dropped: int = 0


def parse_recent(value: object) -> Recent:
    """The rings of ``state["recent"]``; whatever is wrong with it, at least nothing."""
    if not isinstance(value, Mapping):
        return Recent(dropped=int(value is not None))
    loads, bad_loads = _rows(value.get("loads"), LOAD_FIELDS, _load)
    steps, bad_steps = _rows(value.get("steps"), STEP_FIELDS, _step)
    return Recent(loads=tuple(loads), steps=tuple(steps), dropped=bad_loads + bad_steps)


def _rows(
    ring: object, fields: Sequence[str], build: Callable[[Mapping[str, Any]], _T | None]
) -> tuple[list[_T], int]:
    if ring is None:
        return [], 0
    if not isinstance(ring, Mapping):
        return [], 1
    names, rows = ring.get("fields"), ring.get("rows")
    if (
        not isinstance(names, list)
        or not isinstance(rows, list)
        or not set(fields) <= _texts(names)
    ):
        return [], 1
    found, dropped = [], max(0, len(rows) - _MOST_ROWS)
    for row in rows[-_MOST_ROWS:]:
        made = None
        if isinstance(row, list) and len(row) == len(names):
            made = build(dict(zip(names, row, strict=True)))
        if made is None:
            dropped += 1
        else:
            found.append(made)
    return found, dropped


def _texts(names: list[Any]) -> set[str]:
    return {name for name in names if isinstance(name, str)}


def _number(value: object, most: float, least: float = 0.0) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An int may be too long for a float; it is compared before it is made one.
    if not least <= value <= most or not math.isfinite(value):
        return None
    return float(value)


def _seconds(value: object, least: float = 0.0) -> float | None:
    found = _number(value, _MOST_SECONDS, least)
    return None if found is None else round(found, _DIGITS)


def _load(row: Mapping[str, Any]) -> LoadRecord | None:
    serial = _number(row["serial"], _MOST_SERIAL)
    tokens = _number(row["tokens"], _MOST_TOKENS, 1)
    size = _number(row["bytes"], _MOST_BYTES)
    seconds = [
        _seconds(row[name])
        for name in ("probeSeconds", "fetchSeconds", "servedSeconds", "stepSeconds")
    ]
    notice = row["noticeSeconds"]
    noticed = None if notice is None else _seconds(notice)
    step_tokens = _number(row["stepTokens"], _MOST_TOKENS)
    step_loads = _number(row["stepLoads"], _MOST_TOKENS, 1)
    probe, fetch, served, step = seconds
    if serial is None or tokens is None or size is None or step_tokens is None:
        return None
    if probe is None or fetch is None or served is None or step is None or step_loads is None:
        return None
    if notice is not None and noticed is None:
        return None
    return LoadRecord(
        serial=int(serial),
        tokens=int(tokens),
        bytes_read=int(size),
        probe_seconds=probe,
        fetch_seconds=fetch,
        served_seconds=served,
        notice_seconds=noticed,
        step_seconds=step,
        step_tokens=int(step_tokens),
        step_loads=int(step_loads),
    )


def _step(row: Mapping[str, Any]) -> StepRecord | None:
    serial = _number(row["serial"], _MOST_SERIAL)
    tokens = _number(row["tokens"], _MOST_TOKENS, STEP_TOKENS)
    seconds = _seconds(row["seconds"], 1e-6)
    if serial is None or tokens is None or seconds is None:
        return None
    return StepRecord(serial=int(serial), tokens=int(tokens), seconds=seconds)
