"""Metrics of the tiers' instances, ``kvserving_operator_tier_*``, from the last look at each.

Made when they are asked for: an instance that is gone leaves no series behind. Labelled with the
object and the ordinal, hence the bound on their number.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kvserving_operator.observe.tier import Tiers
from kvserving_operator.observe.tier_health import InstanceState
from kvserving_operator.runtime import metrics

MOST_INSTANCES: Final = 1024
_LABELS: Final = ("namespace", "name", "ordinal")
_PREFIX: Final = "kvserving_operator_tier"

_Value = Callable[[InstanceState], float | None]
_GAUGES: Final[tuple[tuple[str, str, _Value], ...]] = (
    (
        "up",
        "1 where the last look at the instance stored a value and got it back, else 0.",
        lambda state: float(state.reading.failure is None),
    ),
    (
        "slow",
        "1 where the instance is named as far slower than its siblings, else 0.",
        lambda state: float(state.slow.holds),
    ),
    (
        "round_trip_seconds",
        "Quickest read of a value of 64 KiB by the operator in the last look.",
        lambda state: state.reading.round_trip,
    ),
    ("used_bytes", "used_memory of the instance.", lambda s: s.reading.numbers.used_bytes),
    ("max_bytes", "maxmemory of the instance.", lambda s: s.reading.numbers.most_bytes),
    ("clients", "Connected clients of the instance.", lambda s: s.reading.numbers.clients),
)
_COUNTERS: Final[tuple[tuple[str, str, _Value], ...]] = (
    ("hits", "keyspace_hits of the instance.", lambda s: s.reading.numbers.hits),
    ("misses", "keyspace_misses of the instance.", lambda s: s.reading.numbers.misses),
    ("evictions", "evicted_keys of the instance.", lambda s: s.reading.numbers.evictions),
    ("gets", "GET commands that the instance has served.", lambda s: s.reading.numbers.gets),
    (
        "get_seconds",
        "The instance's own time for them, without network and queues.",
        lambda s: _seconds(s.reading.numbers.get_microseconds),
    ),
)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


class TierCollector(Collector):
    """The instances that `tiers` has looked at, the first `MOST_INSTANCES` of them."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One family a number. What is not known has no sample."""
        states = list(self._tiers.states())
        total = GaugeMetricFamily(
            f"{_PREFIX}_instances",
            f"Instances of tiers that are looked at; {MOST_INSTANCES} have metrics of their own.",
        )
        total.add_metric((), len(states))
        yield total
        shown = list(islice(states, MOST_INSTANCES))
        for kind, families in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
            for name, text, value in families:
                family = kind(f"{_PREFIX}_{name}", text, labels=_LABELS)
                for key, state in shown:
                    if (sample := value(state)) is not None:
                        family.add_metric(
                            (key.namespace, key.name, str(state.place.ordinal)), sample
                        )
                yield family


def show(tiers: Tiers) -> None:
    """Have them on the operator's page, for as long as the process lives."""
    metrics.REGISTRY.register(TierCollector(tiers))
