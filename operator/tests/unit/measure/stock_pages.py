"""The recorded pages of real stock engines, as the agent makes facts of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvserving_agent import facts, series
from kvserving_agent.exposition import Scanner
from kvserving_agent.facts import Answer, Sample, Snapshot
from kvserving_agent.identity import Source, StartId
from kvserving_agent.latency import histogram
from kvserving_operator.measure import EngineFacts, parse

CAPTURED = Path(__file__).parents[2] / "agent" / "captured"
REQUEST = series.LATENCIES["VLLM"]["request"]
TABLE = series.table_of("VLLM", stores=False)


def recorded(where: str) -> list[dict[str, Any]]:
    """Looks at an engine whose Valkey is ``near`` (loopback) or ``far`` (20 ms away)."""
    path = CAPTURED / f"vllm-0.32.0-stock-{where}.jsonl.gz"
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def facts_of(page: str, *, start: str = "e1", role: str = "prefill") -> EngineFacts:
    """What the operator knows of an engine that shows this page now."""
    sums = f"{REQUEST}_sum"
    scanner = Scanner([*(number.metric for number in TABLE.values()), sums], [REQUEST])
    scanner.feed(page.encode())
    scanner.close()
    latencies = {"request": histogram(scanner.buckets.get(REQUEST), scanner.values.get(sums))}
    known = Snapshot(
        start=StartId(start, Source.SOCKET),
        health=Answer(0.0, good=True),
        sample=Sample(0.0, series.numbers(scanner.values, TABLE), latencies),
    )
    answer = facts.render(
        known,
        now=0.0,
        role=role,
        engine_type="VLLM",
        pod_uid="u",
        stale_after=30.0,
        table=TABLE,
        latencies=("request",),
    )
    found = parse("x-prefill-0", answer)
    assert found is not None
    return found


def looks(where: str, **more: Any) -> Iterator[tuple[float, str, EngineFacts]]:
    """Second, what was done before it, and the facts."""
    for each in recorded(where):
        yield each["at"], each["did"], facts_of(each["page"], **more)
