"""The agent's own metrics, `kvserving_agent_*`, computed when they are asked for.

They tell how well the agent sees its engine; the engine's numbers are not repeated here (a
Prometheus reads them from the engine). No label has a value from outside this code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kvserving_agent import facts
from kvserving_agent.watch import Watcher

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_P = "kvserving_agent_"


class _AgentCollector(Collector):
    """Families made from the watcher as it is; what is not known has no series."""

    def __init__(self, watcher: Watcher, refused: Callable[[], int]) -> None:
        self._watcher = watcher
        self._refused = refused

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        watcher = self._watcher
        known, work, now = watcher.known, watcher.work, watcher.clock()
        up = facts.is_up(known, now, watcher.stale_after)
        ready = facts.is_ready(known, now, watcher.stale_after)
        age = now - known.sample.at if known.sample else None
        page = work.last_page
        yield _gauge("engine_up", "1 when the engine's last fresh health answer was good.", up)
        yield _gauge("ready", "1 when /readyz answers 200.", ready)
        draining = known.draining is not None
        yield _gauge("draining", "1 while the engine lets go of its requests.", draining)
        yield _gauge("scrape_age_seconds", "Age of the engine's numbers.", age)
        yield _gauge(
            "scrape_page_bytes", "Length of the last metrics page.", page.bytes if page else None
        )
        yield _gauge(
            "scrape_duration_seconds", "Time the last page took.", page.seconds if page else None
        )
        yield _counter("scrapes", "Metrics pages of the engine read.", work.scrapes)
        yield _counter("engine_starts", "Changes of the engine's start id.", work.start_changes)
        yield _counter("unauthorised_requests", "Requests answered with 401.", self._refused())
        errors = CounterMetricFamily(
            _P + "engine_errors", "Failed questions to the engine.", labels=["question", "fault"]
        )
        for (question, fault), count in sorted(work.errors.items()):
            errors.add_metric([question, fault.value], count)
        yield errors


class AgentMetrics:
    """The text of `GET /metrics`: the families above and `process_*` of the agent itself."""

    def __init__(self, watcher: Watcher, refused: Callable[[], int]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_AgentCollector(watcher, refused))
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """The page as it is now."""
        return generate_latest(self._registry)


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(_P + name, text, value=None if value is None else float(value))


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(_P + name, text, value=value)
