"""What a control port in the engine said of itself (pure): the sharded store's, or GraniKV's.

`recent` holds the latest loads and steps of the sharded store as the fit of the cost model reads
them, `{"loads": {"fields", "rows"}, "steps": {"fields", "rows"}}`, oldest first. Of 64 rows each
the newest are passed on, 18 together, with four digits: so they have about 1 KB, and serial
numbers, which grow by one, tell a reader what it missed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

# Of one load and of one step there are about 60 and 20 bytes.
KEPT_ROWS: Mapping[str, int] = {"loads": 12, "steps": 6}
# All that a store keeps: sums.py adds up what facts leave out.
_MOST_ROWS = 64
_MOST_FIELDS = 16
_LARGEST = float(2**63)
_FIELD = re.compile(r"[A-Za-z]{1,32}")

Row = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Ring:
    """The rows of one ring, oldest first.

    `newest` is a time (monotonic seconds) before which its last row was not there; None as long as
    no row has come since the agent began to look, because those may be of any age.
    """

    fields: tuple[str, ...]
    rows: tuple[Row, ...]
    newest: float | None = None


@dataclass(frozen=True, kw_only=True)
class StoreState:
    """What a control port answered to a question sent at a time (monotonic seconds)."""

    at: float
    start: str
    capabilities: tuple[str, ...]
    closed: str | None
    settings: Mapping[str, object]
    since: float | None
    counters: Mapping[str, float]
    recent: Mapping[str, Ring] | None = None


def rings(given: object) -> dict[str, Ring] | None:
    """The rings of a state as far as they are readable; None where it has none at all."""
    if not isinstance(given, Mapping):
        return None
    found = {name: _ring(given.get(name)) for name in KEPT_ROWS}
    return {name: ring for name, ring in found.items() if ring is not None} or None


def _ring(given: object) -> Ring | None:
    if not isinstance(given, Mapping):
        return None
    names, rows = given.get("fields"), given.get("rows")
    if not isinstance(names, list) or not isinstance(rows, list):
        return None
    fields = tuple(n for n in names if isinstance(n, str) and _FIELD.fullmatch(n))
    if not 0 < len(fields) == len(names) <= _MOST_FIELDS:
        return None
    read = (_row(row, len(fields)) for row in rows[-_MOST_ROWS:])
    return Ring(fields=fields, rows=tuple(row for row in read if row is not None))


def _row(given: object, length: int) -> Row | None:
    if not isinstance(given, list) or len(given) != length:
        return None
    row = tuple(None if value is None else _short(value) for value in given)
    unreadable = any(a is None and b is not None for a, b in zip(row, given, strict=True))
    return None if unreadable else row


def _short(value: object) -> float | None:
    """A number with four digits, whole ones as they are; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < _LARGEST:
        return None
    return value if isinstance(value, int) else float(f"{value:.4g}")


def dated(before: StoreState | None, state: StoreState) -> StoreState:
    """`state` with the times of its rings' last rows, by what was there before it."""
    if state.recent is None or before is None or before.start != state.start:
        return state
    old = before.recent or {}
    fresh = {name: _dated(old.get(name), ring, before.at) for name, ring in state.recent.items()}
    return replace(state, recent=fresh)


def _dated(old: Ring | None, ring: Ring, asked: float) -> Ring:
    if not ring.rows:
        return ring
    same = old is not None and old.rows[-1:] == ring.rows[-1:]
    # What came since the last answer came after that was asked for: no age is understated.
    return replace(ring, newest=old.newest if old is not None and same else asked)


def render(
    state: StoreState | None, fault: str | None, now: float, stale_after: float
) -> dict[str, object]:
    """As it stands in facts; all but `lastError` is null without an answer."""
    return {
        "startId": state.start if state else None,
        "closed": state.closed if state else None,
        "settings": state.settings if state else None,
        "since": state.since if state else None,
        "counters": state.counters if state else None,
        "recent": _recent(state.recent, now) if state and state.recent else None,
        "ageSeconds": round(now - state.at, 1) if state else None,
        "stale": now - state.at > stale_after if state else None,
        "lastError": fault,
    }


def _recent(recent: Mapping[str, Ring], now: float) -> dict[str, object]:
    return {
        name: {
            "newestAgeSeconds": None if ring.newest is None else round(now - ring.newest, 1),
            "fields": ring.fields,
            "rows": ring.rows[-KEPT_ROWS[name] :],
        }
        for name, ring in recent.items()
    }


def number(value: object) -> float | None:
    """A finite number of 0 and more; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An int may be too long for a float: compared before it is made one.
    return value if 0 <= value < _LARGEST and math.isfinite(value) else None
