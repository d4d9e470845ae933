"""Loads and steps of the sharded store added up, for whoever scrapes instead of asking (pure).

A ring of rows is no metric. What a scrape can have are sums since the store started, of which any
two readings give means; and a mean of times is worthless where one in twenty takes five times as
long. So rows are added batch by batch, a batch being what came since the store was last asked: of a
batch not its times are added, but its size times the mean of those that are not far from the
median, each row weighing what it moved or computed. The median itself would be off by its share of
the outliers, which all lie on one side.

The first rows of a start compile, connect and allocate: they are left out (the fit of the operator
leaves out as many, kvserving_operator/fit).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType

from kvserving_agent.states import Ring, StoreState

WARM_UP = 5
"""Rows of each ring that a start begins with and that do not count."""
LARGE = 4096
"""Computed tokens from which a step beside a load says nothing of the load."""
FAR = 2.0
"""So many times the median, or that part of it, is far: noise of 20 % hardly comes there."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "loads": "Loads from the tier that are in these sums.",
        "loaded_tokens": "Tokens of these loads.",
        "load_read_bytes": "Bytes of these loads that came from the tier.",
        "load_served_seconds": "Time that the tier worked for these bytes.",
        "lone_loads": "Loads whose step did nothing else.",
        "lone_load_step_seconds": "Time of these steps.",
        "noticed_loads": "Loads that arrived at an idle engine.",
        "noticed_load_fixed_seconds": "Time from question to decision and from last byte to step.",
        "large_steps": "Steps of 4096 computed tokens and more, without a load.",
        "large_step_tokens": "Tokens of these steps.",
        "large_step_seconds": "Time of these steps.",
    }
)
"""The sums, each with what it is."""

Row = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Of one start of the store.

    Attributes:
        start: Its name.
        load_serial: Number of the newest load that was looked at; -1 before any.
        step_serial: The same of large steps.
        totals: By the names of NAMES.
    """

    start: str = ""
    load_serial: int = -1
    step_serial: int = -1
    totals: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0.0))


def fold(before: Sums, state: StoreState) -> Sums:
    """The sums with what is new in a state; begun anew for another start."""
    if before.start != state.start:
        before = Sums(start=state.start)
    rings = state.recent or {}
    loads = _fresh(rings.get("loads"), before.load_serial)
    steps = _fresh(rings.get("steps"), before.step_serial)
    added = _of_loads([row for row in loads if row["serial"] >= WARM_UP])
    added |= _of_steps([row for row in steps if row["serial"] >= WARM_UP])
    return Sums(
        start=state.start,
        load_serial=max([before.load_serial, *(int(row["serial"]) for row in loads)]),
        step_serial=max([before.step_serial, *(int(row["serial"]) for row in steps)]),
        totals={name: before.totals[name] + added.get(name, 0.0) for name in NAMES},
    )


def _fresh(ring: Ring | None, serial: int) -> list[dict[str, float]]:
    """Rows behind a number, as far as they are whole; what a row lacks is not in it."""
    if ring is None:
        return []
    rows = (dict(zip(ring.fields, row, strict=True)) for row in ring.rows)
    known = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return [row for row in known if row.get("serial", -1) > serial]


def _of_loads(rows: list[dict[str, float]]) -> dict[str, float]:
    whole = [row for row in rows if {"tokens", "bytes", "servedSeconds"} <= row.keys()]
    read = [row for row in whole if row["bytes"] > 0 and row["servedSeconds"] > 0]
    moved = sum(row["bytes"] for row in read)
    alone = [row["stepSeconds"] for row in rows if _is_alone(row)]
    noticed = [
        row["probeSeconds"] + row["noticeSeconds"]
        for row in rows
        if {"probeSeconds", "noticeSeconds"} <= row.keys()
    ]
    return {
        "loads": len(whole),
        "loaded_tokens": sum(row["tokens"] for row in whole),
        "load_read_bytes": moved,
        "load_served_seconds": moved
        * _typical((row["servedSeconds"] / row["bytes"], row["bytes"]) for row in read),
        "lone_loads": len(alone),
        "lone_load_step_seconds": len(alone) * _typical((each, 1.0) for each in alone),
        "noticed_loads": len(noticed),
        "noticed_load_fixed_seconds": len(noticed) * _typical((each, 1.0) for each in noticed),
    }


def _is_alone(row: Mapping[str, float]) -> bool:
    known = {"stepSeconds", "stepTokens", "stepLoads"} <= row.keys()
    return known and row["stepLoads"] == 1 and row["stepTokens"] < LARGE


def _of_steps(rows: list[dict[str, float]]) -> dict[str, float]:
    whole = [row for row in rows if row.get("tokens", 0.0) >= LARGE and "seconds" in row]
    tokens = sum(row["tokens"] for row in whole)
    return {
        "large_steps": len(whole),
        "large_step_tokens": tokens,
        "large_step_seconds": tokens
        * _typical((row["seconds"] / row["tokens"], row["tokens"]) for row in whole),
    }


def _typical(weighted: Iterable[tuple[float, float]]) -> float:
    """The weighted mean of (value, weight) without what is far from the median; 0 of none.

    Two values are too few for one to be an outlier: all of them count.
    """
    pairs = sorted(weighted)
    if len(pairs) > 2:
        middle = _median(pairs)
        pairs = [
            (value, weight) for value, weight in pairs if middle / FAR <= value <= middle * FAR
        ]
    whole = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / whole if pairs else 0.0


def _median(pairs: Sequence[tuple[float, float]]) -> float:
    """The lower weighted median of sorted pairs."""
    half = sum(weight for _, weight in pairs) / 2
    below = accumulate(weight for _, weight in pairs)
    return next(value for (value, _), sofar in zip(pairs, below, strict=True) if sofar >= half)
