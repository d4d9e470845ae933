"""The store's counters as Prometheus metrics of this process. Needs prometheus_client.

Values go where the engine's own metrics go: with PROMETHEUS_MULTIPROC_DIR set, which the operator
does, every process's are on the engine's /metrics. ``docs/sharded-store.md`` has the names.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from kvserving_sharded_store.resp.stats import BOUNDS

_log = logging.getLogger(__name__)

_COUNTERS: Final[dict[str, tuple[str, str, str]]] = (
    {
        f"{verb}_{outcome}": (
            "requests",
            f"verb={verb},outcome={outcome}",
            "Keys asked of instances",
        )
        for verb in ("get", "set", "exists", "remove")
        for outcome in ("done", "absent", "failed", "cancelled")
    }
    | {
        f"{phase}_seconds": ("phase_seconds", f"phase={phase}", "Seconds of loads by phase")
        for phase in ("wait", "stage", "exchange", "transfer", "write", "store")
    }
    | {
        f"short_{cause}": ("short_loads", f"cause={cause}", "Loads that ended before their end")
        for cause in ("absent", "failed", "memory", "staging", "mismatch", "closed")
    }
    | {
        "bytes_read": ("read_bytes", "", "Bytes read from instances"),
        "bytes_written": ("written_bytes", "", "Bytes written to instances"),
        "connects": ("connects", "", "Connections made"),
        "connect_failures": ("connect_failures", "", "Connections that could not be made"),
        "breaker_openings": ("breaker_openings", "", "Times an instance was given up"),
        "fetch_busy_seconds": ("fetch_busy_seconds", "", "Seconds with a GET under way"),
        "loads": ("loads", "", "Loads"),
        "loaded_chunks": ("loaded_chunks", "", "Chunks loaded"),
        "put_skipped": ("put_skipped", "", "Chunks not stored because too much was under way"),
        "lookup_holes": (
            "lookup_holes",
            "",
            "Lookups that stopped at a hole with chunks behind it",
        ),
        "absent_after_exists": ("absent_after_exists", "", "Chunks gone between EXISTS and GET"),
        "probed_chunks": ("probed_chunks", "", "Chunks read to measure a bypassed tier"),
        "lookups": ("lookups", "", "Lookups"),
        "lookups_late": ("lookups_late", "", "Lookups that ran into their deadline"),
        "lookup_seconds": ("lookup_seconds", "", "Seconds of lookups, fetches included"),
        "decision_load_seconds": ("decision_load_seconds", "", "Predicted cost of loading, summed"),
        "decision_recompute_seconds": (
            "decision_recompute_seconds",
            "",
            "Predicted cost of recomputing, summed",
        ),
        "requests_refused": ("requests_refused", "", "Requests that must not use the tier"),
    }
)
"""Counter of ours → name, fixed labels and help."""

_GAUGES: Final[dict[str, tuple[str, str]]] = {
    "held_bytes": ("held_bytes", "Host memory held for loads and stores"),
    "owed_bytes": ("owed_bytes", "Bytes asked of instances and not here yet"),
    "busy_share": ("busy_share", "Share of time the engine is stepping"),
    "bypassed": ("bypassed", "Whether the tier is left alone at present"),
}


def _labels(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}


class Exporter:
    """Exports one process's counters.

    Args:
        labels: Of all of them, alike in every exporter of a process.
    """

    _made: dict[str, Any] = {}  # noqa: RUF012 (one per process: names are registered once)

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._last: dict[str, float] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._sums: dict[str, float] = {}

    def update(self, counts: Mapping[str, float], tier: Any = None) -> None:
        """Bring the metrics up to these counts.

        Args:
            counts: Counters and gauges since the start.
            tier: The rank's instances, for what is told by instance.
        """
        for name, value in counts.items():
            if name in _GAUGES:
                short, text = _GAUGES[name]
                self._gauge(short, text).set(value)
                continue
            more = value - self._last.get(name, 0.0)
            if more <= 0:
                continue
            self._last[name] = value
            if name in _COUNTERS:
                short, fixed, text = _COUNTERS[name]
                self._counter(short, text, _labels(fixed)).inc(more)
            elif name.startswith("decision_"):
                _, mode, reason = name.split("_", 2)
                self._counter("decisions", "Decisions", {"mode": mode, "reason": reason}).inc(more)
        for slot, instance in enumerate(() if tier is None else tier.instances):
            self._instance(str(slot), instance)

    def _instance(self, slot: str, instance: Any) -> None:
        open_now = self._gauge("breaker_open", "Whether an instance is given up", slot=slot)
        open_now.set(float(instance.is_open))
        buckets, total = instance.stats.histogram()
        latency = self._metric(
            Histogram, "get_seconds", "Seconds of a GET", [*self._labels, "slot"], buckets=BOUNDS
        ).labels(**self._labels, slot=slot)
        # In bulk: a call per GET on the data path would cost what is being measured.
        for index, count in enumerate(buckets):
            more = count - self._seen.get((slot, index), 0)
            if more:
                latency._buckets[index].inc(more)
                self._seen[slot, index] = count
        latency._sum.inc(total - self._sums.get(slot, 0.0))
        self._sums[slot] = total

    def _counter(self, short: str, text: str, fixed: Mapping[str, str]) -> Any:
        names = [*self._labels, *fixed]
        return self._metric(Counter, short, text, names).labels(**self._labels, **fixed)

    def _gauge(self, short: str, text: str, **more: str) -> Any:
        names = [*self._labels, *more]
        made = self._metric(Gauge, short, text, names, multiprocess_mode="livemax")
        return made.labels(**self._labels, **more)

    @classmethod
    def _metric(cls, kind: Any, short: str, text: str, names: list[str], **options: Any) -> Any:
        name = f"kvserving_store_{short}"
        if name not in cls._made:
            cls._made[name] = kind(name, text, names, registry=REGISTRY, **options)
        return cls._made[name]


def tell_pair(vllm: str | None, lmcache: str | None, *, patched: bool, closed: str) -> None:
    """Say which versions were found and what came of it, as a gauge that never changes."""
    names = ["vllm", "lmcache", "closed"]
    made = Exporter._metric(
        Gauge, "patched", "Whether this pair is patched", names, multiprocess_mode="livemax"
    )
    made.labels(vllm=vllm or "", lmcache=lmcache or "", closed=closed).set(float(patched))
