"""How level 0 is cut: every class's keys into pieces, and the pieces to workers.

Time is counted in key blocks of one worker.  Beginning and ending a piece costs about 3 of them,
and each further partial of a request about one per 1,024 rows in the merge (measured on H200).
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from math import inf

PIECE = 3.0  # key blocks that a piece costs beside its own

Job = tuple[int, int]
"""A class: row tiles, key blocks."""

Piece = tuple[int, int, int, int]
"""Class, row tile, first and last key block (excluded)."""


@lru_cache(maxsize=4096)
def lay_out(jobs: tuple[Job, ...], workers: int, min_blocks: int) -> tuple[tuple[Piece, ...], ...]:
    """Each worker's pieces, in the order in which it does them.

    All row tiles of a class are cut at the same keys and such pieces are dealt out side by side,
    so that they read one range of the slab together.  (One line of work cut at equal distances
    balances better and was measured 13 % slower: every worker then starts somewhere else in the
    slab, and all of it comes from memory at once.)  A lone class whose tiles do not fill the
    workers evenly is cut so for the most part, and only its rest is one line for those left over.
    """
    cost, splits = choose_splits(jobs, workers, min_blocks)
    if len(jobs) == 1:
        rest_cost, hands = _with_rest(*jobs[0], workers, min_blocks)
        if rest_cost < cost:
            return hands
    pieces = [
        (i, tile, s * blocks // split, (s + 1) * blocks // split)
        for i, ((tiles, blocks), split) in enumerate(zip(jobs, splits, strict=True))
        for s in range(split)
        for tile in range(tiles)
    ]
    hands_of = deal([p[3] - p[2] for p in pieces], workers)
    return tuple(tuple(pieces[i] for i in hand) for hand in hands_of)


@lru_cache(maxsize=4096)
def choose_splits(
    jobs: tuple[Job, ...], workers: int, min_blocks: int
) -> tuple[float, tuple[int, ...]]:
    """Expected time, and into how many equal pieces each class's keys are cut for it."""
    if not jobs:
        return 0.0, ()
    best: tuple[float, tuple[int, ...]] = (inf, ())
    longest = max(blocks for _, blocks in jobs)
    total = sum(tiles * blocks for tiles, blocks in jobs)
    rows = sum(tiles for tiles, _ in jobs) / 16.0
    for cut in range(1, min(2 * workers, max(1, longest // min_blocks)) + 1):
        size = -(-longest // cut)
        splits = tuple(-(-blocks // size) for _, blocks in jobs)
        lengths = [-(-b // s) for (_, b), s in zip(jobs, splits, strict=True)]
        count = sum(tiles * s for (tiles, _), s in zip(jobs, splits, strict=True))
        waves = -(-count // workers)
        if min(lengths) * 5 >= max(lengths) * 4:
            span = float(waves * max(lengths))
        else:  # longest first fills the gaps that short pieces can fill
            span = max(float(max(lengths)), total / workers + 0.4 * total / count)
        cost = span + PIECE * waves + rows * max(splits)
        if cost < best[0]:
            best = (cost, splits)
    return best


def _with_rest(
    tiles: int, blocks: int, workers: int, min_blocks: int
) -> tuple[float, tuple[tuple[Piece, ...], ...]]:
    """Expected time and hands when workers left over share the end of every tile's keys.

    With 12 tiles and 33 workers 24 of them take two equal pieces of each tile, and the other 9
    divide what is left of all tiles evenly: 50 blocks each instead of 57.
    """
    best: tuple[float, tuple[tuple[Piece, ...], ...]] = (inf, ())
    for fronts in range(1, min(8, (workers - 1) // tiles) + 1):
        spare = workers - fronts * tiles
        even = (tiles * blocks / spare + PIECE) / (1.0 + fronts * tiles / spare)
        for length in range(max(min_blocks, int(even) - 1), int(even) + 3):
            begin = fronts * length
            if begin >= blocks or tiles * (blocks - begin) < spare * min_blocks:
                break
            front = [
                ((0, tile, s * length, (s + 1) * length),)
                for s in range(fronts)
                for tile in range(tiles)
            ]
            rest = _line(tiles, begin, blocks, spare)
            spans = [sum(p[3] - p[2] + PIECE for p in hand) for hand in rest]
            most = max(sum(p[1] == tile for hand in rest for p in hand) for tile in range(tiles))
            cost = max(length + PIECE, *spans) + tiles / 16.0 * (fronts + most)
            if cost < best[0]:
                best = (cost, (*front, *rest))
    return best


def _line(tiles: int, begin: int, end: int, workers: int) -> list[tuple[Piece, ...]]:
    """Blocks [begin, end) of all tiles, one after the other, in equal shares."""
    size = end - begin
    edges = [tiles * size * w // workers for w in range(workers + 1)]
    hands = []
    for low, high in pairwise(edges):
        hand = []
        for tile in range(low // size, -(-high // size)):
            first, last = max(low, tile * size), min(high, (tile + 1) * size)
            if last > first:
                hand.append((0, tile, begin + first - tile * size, begin + last - tile * size))
        hands.append(tuple(hand))
    return hands


def deal(lengths: Sequence[int], workers: int) -> list[list[int]]:
    """Pieces to workers: longest first, each to whoever is free first, neighbours together."""
    hands: list[list[int]] = [[] for _ in range(workers)]
    free = [(0.0, worker) for worker in range(workers)]
    for piece in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        busy, worker = heappop(free)
        hands[worker].append(piece)
        heappush(free, (busy + lengths[piece] + PIECE, worker))
    return hands
