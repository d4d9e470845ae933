"""Latencies as counts by bucket, which can be added over pods (pure).

An engine's page has of each latency only the counts below fixed bounds. A sketch (DDSketch,
t-digest) made from these would know no more, would add an error of its own and a dependency, and
would be no shorter; so what is passed on are the counts themselves, from the first bucket that
holds any to the last. Counts of equal buckets add up over series, ranks and pods, and the
difference of two readings of one engine start is the latency between them. A percentile is known to
within its bucket, whose both edges are told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# vLLM has 23 bounds at most; a page with more of them is not read as a histogram.
MOST_BOUNDS = 64
# No engine has served as many requests or tokens; it is also what a 64-bit reader can hold.
_LARGEST = float(2**63)

Buckets = Mapping[str, Sequence[float | None]]
"""By the text of a bound (label `le`): the cumulative counts of all series."""


@dataclass(frozen=True)
class Histogram:
    """Observations since the engine started.

    Attributes:
        edges: Bounds in seconds, rising, one more than `counts`; bucket i holds what is above
            edge i and not above edge i + 1. The last one is None when there is no upper bound.
            Empty without an observation.
        counts: Of the buckets from the first to the last that hold any.
        seconds: Of all observations together.
    """

    edges: tuple[float | None, ...]
    counts: tuple[int, ...]
    seconds: float | None

    @property
    def count(self) -> int:
        """Observations."""
        return sum(self.counts)

    def data(self) -> dict[str, object]:
        """As it stands in facts."""
        counts = {"edges": list(self.edges), "counts": list(self.counts)}
        return {"count": self.count, "sumSeconds": self.seconds, **counts}


def histogram(buckets: Buckets | None, sums: Sequence[float | None] | None) -> Histogram | None:
    """The histogram of a page, all series added up; None where the page gives no honest one.

    Args:
        buckets: Cumulative counts by bound.
        sums: Seconds of all observations, one entry a series.
    """
    if not buckets or len(buckets) > MOST_BOUNDS:
        return None
    if len({len(values) for values in buckets.values()}) != 1:
        return None
    points = [(_bound(text), _total(values)) for text, values in buckets.items()]
    usable = [(bound, total) for bound, total in points if bound is not None and total is not None]
    usable.sort()
    if len(usable) != len(points) or usable[-1][0] != math.inf:
        return None
    # One bound in two spellings (1 and 1.0, +Inf and inf) is two histograms, or nonsense.
    if any(lower == upper for (lower, _), (upper, _) in pairwise(usable)):
        return None
    counts = [after - before for (_, before), (_, after) in pairwise([(0.0, 0), *usable])]
    if min(counts) < 0:
        return None
    held = [index for index, count in enumerate(counts) if count]
    first, last = (held[0], held[-1] + 1) if held else (0, 0)
    bounds = [None if math.isinf(bound) else bound for bound, _ in usable]
    edges = [0.0, *bounds][first : last + 1] if held else []
    return Histogram(tuple(edges), tuple(counts[first:last]), _seconds(sums))


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return bound if bound >= 0 else None


def _total(values: Sequence[float | None]) -> int | None:
    if not values or not all(v is not None and 0 <= v < _LARGEST for v in values):
        return None
    return int(math.fsum(v for v in values if v is not None))


def _seconds(sums: Sequence[float | None] | None) -> float | None:
    if not sums or not all(v is not None and 0 <= v < _LARGEST for v in sums):
        return None
    return round(math.fsum(v for v in sums if v is not None), 3)
