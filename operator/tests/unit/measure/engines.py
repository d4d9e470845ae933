"""Engines at two looks, as facts: what tests of measurements begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvserving_operator.fit import LoadRecord, Recent, StepRecord
from kvserving_operator.measure import ControlFacts, ControlSettings, EngineFacts, Latency, Reading

ELAPSED = 60.0
STALE = 150.0
COUNTERS: Mapping[str, float] = {
    "ranks_reporting": 2.0,
    "instances": 2.0,
    "open_breakers": 0.0,
    "busy_share": 0.4,
    "bytes_read": 8e9,
    "bytes_written": 4e9,
    "get_done": 800.0,
    "set_done": 400.0,
    "fetch_busy_seconds": 10.0,
}
AUTO = ControlSettings(mode="Auto", min_tokens=0)


def load(serial: int, **changes: Any) -> LoadRecord:
    """A load of 16,000 tokens: B 10 GB/s, Te .18 s, Tw .15 s."""
    made = LoadRecord(
        serial=serial,
        tokens=16_000,
        bytes_read=800_000_000,
        probe_seconds=0.14,
        fetch_seconds=0.08,
        served_seconds=0.08,
        notice_seconds=0.01,
        step_seconds=0.18,
        step_tokens=300,
        step_loads=1,
    )
    return replace(made, **changes)


def step(serial: int) -> StepRecord:
    """A step at 50,000 tokens a second."""
    return StepRecord(serial=serial, tokens=10_000, seconds=0.2)


def recent(first: int = 10, count: int = 12, **changes: Any) -> Recent:
    """A ring of loads and one of steps."""
    serials = range(first, first + count)
    return Recent(
        loads=tuple(load(serial, **changes) for serial in serials),
        steps=tuple(step(serial) for serial in serials),
    )


def store(counters: Mapping[str, float] | None = None, **changes: Any) -> ControlFacts:
    """An open store that was asked three seconds ago."""
    made = ControlFacts(
        start_id="s1",
        settings=AUTO,
        counters={**COUNTERS, **(counters or {})},
        recent=recent(),
        age_seconds=3.0,
        stale=False,
    )
    return replace(made, **changes)


def latency(*counts: int) -> Latency:
    """Buckets of a tenth of a second each, the last without an end."""
    edges = [round(index / 10, 1) for index in range(len(counts))]
    uppers = [*edges[1:], None]
    buckets = tuple(
        (lower, upper, count)
        for lower, upper, count in zip(edges, uppers, counts, strict=True)
        if count
    )
    return Latency(count=sum(counts), seconds=None, buckets=buckets, age_seconds=3.0)


def engine(pod: str = "x-prefill-0", **changes: Any) -> EngineFacts:
    """A prefill engine with an open store."""
    made = EngineFacts(
        pod=pod,
        role="prefill",
        start_id="e1",
        up=True,
        hung=False,
        latencies={"request": latency(0, 0, 0, 4)},
        scrape_age_seconds=3.0,
        store=store(),
    )
    return replace(made, **changes)


def reading(*engines: EngineFacts, at: float = 0.0, hot: tuple[EngineFacts, ...] = ()) -> Reading:
    """A look at these engines."""
    return Reading(
        at=at,
        carriers={facts.pod: facts for facts in engines},
        decoders={facts.pod: facts for facts in hot},
    )
