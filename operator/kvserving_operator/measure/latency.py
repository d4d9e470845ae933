"""Percentiles of what was observed between two looks, from counts by bucket. Pure."""

from collections.abc import Iterable
from typing import Final

from kvserving_operator.measure.facts import Latency

LEAST: Final = 8
"""Observations below which a median says nothing."""

_Edges = tuple[float, float | None]


def median_between(pairs: Iterable[tuple[Latency | None, Latency | None]]) -> float | None:
    """Median of the observations that came between two looks at several engines.

    Each pair is one life of an engine, earlier and later. None for fewer than ``LEAST``. Counts of
    equal buckets are added; inside of its bucket the median is taken as if they lay evenly.
    """
    counts: dict[_Edges, int] = {}
    for before, now in pairs:
        for edges, count in (_difference(before, now) or {}).items():
            counts[edges] = counts.get(edges, 0) + count
    total = sum(counts.values())
    if total < LEAST:
        return None
    below, half = 0, total / 2
    for (lower, upper), count in sorted(counts.items(), key=lambda item: item[0][0]):
        if count and below + count >= half:
            share = (half - below) / count
            return lower if upper is None else lower + share * (upper - lower)
        below += count
    return None


def _difference(before: Latency | None, now: Latency | None) -> dict[_Edges, int] | None:
    """New observations by bucket; None where counts went back. Empty buckets are not told of."""
    if before is None or now is None:
        return None
    counts = {(lower, upper): count for lower, upper, count in now.buckets}
    for lower, upper, count in before.buckets:
        left = counts.get((lower, upper), 0) - count
        if left < 0:
            return None
        counts[lower, upper] = left
    return counts
