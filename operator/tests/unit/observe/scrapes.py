"""An agent's metrics page as a Prometheus keeps it: the series of all scrapes of one target."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kvserving_agent import export, facts
from kvserving_agent.facts import Snapshot
from kvserving_agent.series import LATENCIES, VLLM_NUMBERS
from kvserving_agent.sums import Sums
from kvserving_operator.observe.promql import Series

LABELS = {"namespace": "ns", "pod": "x-prefill-0", "job": "agents", "instance": "10.0.0.1:9095"}
QUERIES = 4


def answer(known: Snapshot, *, now: float = 100.0, **more: Any) -> dict[str, Any]:
    """What the agent answers to GET /v1/facts."""
    return facts.render(
        known,
        now=now,
        role="prefill",
        engine_type="VLLM",
        pod_uid="uid",
        stale_after=20.0,
        table=VLLM_NUMBERS,
        latencies=LATENCIES["VLLM"],
        **more,
    )


class Scrapes:
    """Collects pages; `series` is what each query is answered."""

    def __init__(self, labels: Mapping[str, str] = LABELS) -> None:
        self._labels = labels
        self._points: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(
            list
        )

    def scrape(self, at: float, said: Mapping[str, Any], sums: Sums = Sums()) -> None:  # noqa: B008
        for family in export.families(said, sums):
            for sample in family.samples:
                own = {name: value for name, value in sample.labels.items() if value}
                labels = {"__name__": sample.name, **own, **self._labels}
                self._points[tuple(sorted(labels.items()))].append((at, float(sample.value)))

    @property
    def series(self) -> list[Series]:
        return [Series(dict(labels), tuple(points)) for labels, points in self._points.items()]

    @property
    def answers(self) -> list[list[Series]]:
        """Every query is answered everything: what belongs to whom is the reader's to find."""
        return [self.series] * QUERIES
