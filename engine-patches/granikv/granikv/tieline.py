"""The line between the paged pass and the ways out of it: monotone, and never far behind paged."""

from collections.abc import Sequence
from math import inf, log

Grid = Sequence[Sequence[float]]  # microseconds, [members][lengths], both ascending

TOLERANCE = 1.05  # what a point beyond the line may take, over paged


def draw(paged: Grid, leaving: Grid) -> tuple[int, ...]:
    """For each row the first column from which on a class leaves; the width: it never does.

    Columns never rise from a row to the next, so more members or a longer prefix never send a
    class back.  Of all such lines beyond which no point takes more than TOLERANCE of paged, this is
    the one with the least regret, the sum over all points of log(taken / cheaper).  Exact, row by
    row: what is best up to a row depends on the row before only through its column.
    """
    width = len(paged[0])
    total = [0.0] * (width + 1)
    behind: list[list[int]] = []  # by row and column: the best column of the row before
    for slow, fast in zip(paged, leaving, strict=True):
        before = list(range(width + 1))
        for k in reversed(range(width)):
            if total[before[k + 1]] < total[k]:
                before[k] = before[k + 1]
        behind.append(before)
        total = [
            total[b] + regret for b, regret in zip(before, _regrets(slow, fast), strict=True)
        ]  # fmt: skip
    column = min(range(width + 1), key=total.__getitem__)
    line = []
    for before in reversed(behind):
        line.append(column)
        column = before[column]
    return tuple(reversed(line))


def _regrets(paged: Sequence[float], leaving: Sequence[float]) -> list[float]:
    """Of one row, by the column from which on it leaves."""
    ratios = [log(fast) - log(slow) for slow, fast in zip(paged, leaving, strict=True)]
    stay = [max(0.0, -ratio) for ratio in ratios]
    leave = [inf if ratio > log(TOLERANCE) else max(0.0, ratio) for ratio in ratios]
    return [sum(stay[:k]) + sum(leave[k:]) for k in range(len(ratios) + 1)]
