"""The agent's own metrics, `kvserving_agent_*`, computed when they are asked for.

They tell how well the agent sees its engine, and what facts say of it (export.py): an engine's own
page is out of a Prometheus' reach, because on its port is its whole unauthenticated API.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvserving_agent import export
from kvserving_agent.connections import Refused
from kvserving_agent.lives import Past
from kvserving_agent.watch import Watcher

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_P = "kvserving_agent_"

_log = logging.getLogger(__name__)

Answer = Callable[[], Mapping[str, Any]]
"""Gives the facts as of now."""


class _AgentCollector(Collector):
    """Families made from the watcher as it is; what is not known has no series.

    An answer that cannot be shown is left out with its cause in the log, once: by this page the
    kubelet tells whether the agent is alive, and ends all of the container if it gets none.
    """

    def __init__(self, watcher: Watcher, answer: Answer, refused: Refused, past: Past) -> None:
        self._watcher = watcher
        self._answer = answer
        self._refused = refused
        self._past = past
        self._shown = True

    def collect(self) -> Iterator[Metric]:
        yield from self._own()
        yield from self._of_facts()

    def _of_facts(self) -> list[Metric]:
        try:
            families = list(export.families(self._answer(), self._watcher.sums))
        except Exception:  # noqa: BLE001 - whatever an engine can make of it
            if self._shown:
                _log.exception("facts cannot be shown as metrics")
            self._shown = False
            return []
        self._shown = True
        return families

    def _own(self) -> Iterator[Metric]:
        work = self._watcher.work
        page = work.last_page
        draining = self._watcher.known.draining is not None
        yield _gauge("draining", "1 while the engine lets go of its requests.", draining)
        yield _gauge(
            "scrape_page_bytes", "Length of the last metrics page.", page.bytes if page else None
        )
        yield _gauge(
            "scrape_duration_seconds", "Time the last page took.", page.seconds if page else None
        )
        yield _counter("scrapes", "Metrics pages of the engine read.", work.scrapes)
        yield _counter("engine_starts", "Changes of the engine's start id.", work.start_changes)
        refused = self._refused
        yield _counter("unauthorised_requests", "Requests answered with 401.", refused.unauthorised)
        yield _counter("malformed_requests", "Requests that are no HTTP.", refused.malformed)
        errors = CounterMetricFamily(
            _P + "engine_errors", "Failed questions to the engine.", labels=["question", "fault"]
        )
        for (question, fault), count in sorted(work.errors.items()):
            errors.add_metric([question, fault.value], count)
        yield errors
        restarts = CounterMetricFamily(
            _P + "restarts", "Lives of the agent that ended, by how they did.", labels=["reason"]
        )
        for reason, count in sorted(self._past.ends.items()):
            restarts.add_metric([reason], count)
        yield restarts


class AgentMetrics:
    """The text of `GET /metrics`: the families above and `process_*` of the agent itself."""

    def __init__(self, watcher: Watcher, answer: Answer, refused: Refused, past: Past) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_AgentCollector(watcher, answer, refused, past))
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """The page as it is now."""
        return generate_latest(self._registry)


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(_P + name, text, value=None if value is None else float(value))


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(_P + name, text, value=value)
