"""Which idle slabs to push out so that a newcomer of a given length fits.

A slab is useless unless it is contiguous, so the victims are chosen as one run of free ranges and
idle slabs, never as "the worst slabs until something fits", which frees slots that do not join.
"""

from collections.abc import Callable, Mapping, Sequence

from granikv.hot import HotPool
from granikv.policy import Candidate

Cost = Callable[[Sequence[Candidate]], tuple[float, float]]


def cheapest_window(
    hot: HotPool, wanted: int, idle: Mapping[int, Sequence[Candidate]], cost: Cost
) -> list[int]:
    """Slab ids of the cheapest run that holds `wanted` slots; empty when there is none.

    `idle` maps each slab that may go to what its loss means; every other slab is a wall.
    """
    best: tuple[tuple[float, float], list[int]] | None = None
    for island in _islands(hot, idle):
        first = size = 0
        for last, (_, length) in enumerate(island):
            size += length
            while size - island[first][1] >= wanted:
                size -= island[first][1]
                first += 1
            if size < wanted:
                continue
            slabs = [s for s, _ in island[first : last + 1] if s is not None]
            price = cost([c for s in slabs for c in idle[s]])
            if best is None or price < best[0]:
                best = (price, slabs)
    return best[1] if best else []


def _islands(hot: HotPool, idle: Mapping[int, object]) -> list[list[tuple[int | None, int]]]:
    """Runs of (slab or None for free, length) between walls, in address order."""
    pieces: list[tuple[int, int, int | None]] = [(s, n, None) for s, n in hot.free_ranges()]
    pieces += [(s.base, s.length, s.id) for s in hot.slabs.values()]
    pieces += [(base, length, -1) for base, length in hot.reservations().items()]
    if hot.ceiling > hot.bump:
        pieces.append((hot.bump, hot.ceiling - hot.bump, None))
    islands: list[list[tuple[int | None, int]]] = [[]]
    for _, length, slab in sorted(pieces, key=lambda piece: piece[0]):
        if slab is not None and slab not in idle:
            islands.append([])
        else:
            islands[-1].append((slab, length))
    return islands
