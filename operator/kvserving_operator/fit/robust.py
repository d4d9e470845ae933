"""Location, spread and change of noisy numbers with outliers among them. Pure, no numpy."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

_MAD_TO_SIGMA: Final = 1.4826
"""For normal noise."""
_TUNING: Final = 4.685
"""Tukey's constant: 95 % as good as the mean where there are no outliers."""
_ROUNDS: Final = 20
_STILL: Final = 1e-6
_RECENT: Final = 64
"""Values among which a change shows soonest: 13 new ones are enough."""


def spread(values: Sequence[float], centre: float) -> float:
    """Standard deviation around ``centre``, as the median distance shows it."""
    return _MAD_TO_SIGMA * median(abs(value - centre) for value in values)


def location(values: Sequence[float]) -> tuple[float, float]:
    """Centre of ``values`` and its standard error: Tukey's biweight, started at the median.

    Unlike the median it takes no part of an outlier in, and needs a third fewer values. Source:
    Huber and Ronchetti, Robust Statistics, on redescending estimates. At least one value.
    """
    centre = median(values)
    scale = spread(values, centre)
    if scale == 0:
        return centre, 0.0
    reach = _TUNING * scale
    for _ in range(_ROUNDS):
        weights = [max(0.0, 1 - ((value - centre) / reach) ** 2) ** 2 for value in values]
        total = math.fsum(weights)
        moved = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / total
        if abs(moved - centre) <= _STILL * scale:
            break
        centre = moved
    return centre, _error(values, centre, reach)


def _error(values: Sequence[float], centre: float, reach: float) -> float:
    """Standard error of a biweight location by its influence function."""
    squares = slopes = 0.0
    for value in values:
        part = ((value - centre) / reach) ** 2
        if part < 1:
            squares += (value - centre) ** 2 * (1 - part) ** 4
            slopes += (1 - part) * (1 - 5 * part)
    if slopes <= 0:
        return math.inf
    return math.sqrt(squares) / slopes


def change(values: Sequence[float], chance: float) -> int | None:
    """Index from which on ``values`` are others, None while that might be chance.

    Pettitt's test on ranks: an outlier is one rank, and no distribution is assumed. It is made of
    the latest values as well as of all, because few new ones show sooner among few old ones.
    Source: Pettitt 1979, p = 2 exp(-6 K² / (n³ + n²)).
    """
    for count in (_RECENT, len(values)):
        if 4 <= count <= len(values) and _probability(values[-count:]) < chance:
            return len(values) - count + _split(values[-count:])
    return None


def _probability(values: Sequence[float]) -> float:
    """Chance of seeing such an order in values that are all alike."""
    count, score, most = len(values), 0.0, 0.0
    for rank in _ranks(values):
        score += 2 * rank - (count + 1)
        most = max(most, abs(score))
    return 2 * math.exp(-6 * most**2 / (count**3 + count**2))


def _split(values: Sequence[float]) -> int:
    """The index that leaves the least distance to the medians on both sides of it."""

    def distance(part: Sequence[float]) -> float:
        centre = median(part)
        return math.fsum(abs(value - centre) for value in part)

    return min(
        range(2, len(values) - 1), key=lambda at: distance(values[:at]) + distance(values[at:])
    )


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, the mean one for equal values: a timer's resolution makes them."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for position in range(start, stop):
            ranks[order[position]] = (start + 1 + stop) / 2
        start = stop
    return ranks
