"""The step plan: which rows meet which keys, cut into equal pieces, as one block of int32.

Pure numpy.  Running requests that share a HOT range form a class; sorted by their paths, the
members of every class (nested ones too) are adjacent.  What no class covers is read through the
slot table: closed ranges, and one open tail per request that grows as it decodes, so a plan stays
valid until membership changes.  The block has fixed offsets for a given `PlanShape`, so a device
buffer of that shape keeps captured graphs valid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from granikv.cuts import lay_out
from granikv.errors import BadSizeError, OutOfSlotsError
from granikv.shapes import Class, External, Grain, Int64, Path, PlanShape, Running, Span, StepPlan

Choose = Callable[[Class], Path]


@dataclass(frozen=True, slots=True)
class Group:
    """Requests with one and the same HOT path, adjacent in the plan's order."""

    spans: tuple[Span, ...]
    members: list[int]


def find_groups(requests: Sequence[Running]) -> list[Group]:
    """Requests by path, sorted so that what shares a prefix of its path is adjacent."""
    by_path: dict[tuple[Span, ...], list[int]] = {}
    for index, request in enumerate(requests):
        by_path.setdefault(request.spans, []).append(index)
    paths = sorted(by_path, key=lambda spans: [base for _, base, _ in spans])
    return [Group(spans, by_path[spans]) for spans in paths]


def find_classes(groups: Sequence[Group]) -> list[Class]:
    """Every HOT range with the positions that share it, shallow ones first."""
    starts = [0]
    for group in groups:
        starts.append(starts[-1] + len(group.members))
    classes: list[Class] = []
    for level in range(max((len(g.spans) for g in groups), default=0)):
        edges = [0] + [
            i
            for i in range(1, len(groups))
            if groups[i].spans[: level + 1] != groups[i - 1].spans[: level + 1]
        ]
        for first, last in pairwise([*edges, len(groups)]):
            spans = groups[first].spans
            if len(spans) > level:
                position, base, length = spans[level]
                ends = starts[first], starts[last]
                classes.append(Class(*ends, base, length, position=position))
    return classes


def make_plan(
    requests: Sequence[Running],
    grain: Grain,
    shape: PlanShape,
    choose: Choose = lambda _: Path.CASCADE,
    splits: Callable[[Class], int] = lambda _: 1,
) -> StepPlan:
    """Plan one step.  OutOfSlotsError when the block is too small for it."""
    if not 0 < len(requests) <= shape.batch:
        raise BadSizeError(f"{len(requests)} requests in a plan for {shape.batch}")
    groups = find_groups(requests)
    classes = find_classes(groups)
    classes = [replace(c, path=choose(c)) for c in classes]
    plan = StepPlan(shape, np.zeros(shape.offsets()["end"][0], np.int32), classes)
    plan.batch = len(requests)
    builder = _Builder(plan, grain, np.array([i for g in groups for i in g.members]))
    builder.level0([c for c in classes if c.path is Path.CASCADE])
    for cls in classes:
        if cls.path in (Path.CUDNN, Path.DENSE):
            builder.external(cls, splits(cls) if cls.path is Path.CUDNN else 1)
    covered = {c.base for c in classes if c.path is not Path.PAGED}
    builder.ranges(groups, covered, np.array([r.length for r in requests]))
    builder.write_parts()
    return plan


class _Builder:
    """Fills one plan; rows are numbered in the order in which partials are made."""

    def __init__(self, plan: StepPlan, grain: Grain, order: Int64) -> None:
        self.plan, self.grain, self.order = plan, grain, order
        self.owners: list[Int64] = []  # request of each partial
        self.rows: list[Int64] = []  # and its first output row
        self.next_row = 0
        plan.view("order")[: len(order)] = order

    def level0(self, classes: Sequence[Class]) -> None:
        """Cut every class's keys into pieces and deal the pieces out to the workers."""
        grain = self.grain
        step = grain.rows // grain.group * grain.group  # a request's heads stay in one tile
        classes = sorted(classes, key=lambda c: -c.length)
        jobs = tuple(
            (-(-c.members * grain.group // step), -(-c.length // grain.keys)) for c in classes
        )
        hands = lay_out(jobs, grain.workers, grain.min_blocks)
        count = sum(map(len, hands))
        if count > self.plan.shape.items or grain.workers > self.plan.shape.workers:
            raise OutOfSlotsError(f"{count} items, {grain.workers} workers: plan too small")
        if count:
            found = []
            for which, tile, b0, b1 in (piece for hand in hands for piece in hand):
                cls = classes[which]
                row0 = cls.first * grain.group + tile * step
                row1 = min(row0 + step, cls.last * grain.group)
                n1 = min(b1 * grain.keys, cls.length)
                found.append((row0, row1, cls.base, b0 * grain.keys, n1, 0, cls.position))
            items = self.plan.view("items")[:count]
            items[:, :7] = found
            items[:, 5] = self._tile_rows(*items[:, :2].T.astype(np.int64))
        view = self.plan.view("workers")
        view[1 : grain.workers + 1] = np.cumsum([len(hand) for hand in hands])
        view[grain.workers + 1 :] = count
        self.plan.items, self.plan.workers = count, grain.workers

    def external(self, cls: Class, splits: int) -> None:
        """Rows for a class that a library call computes, split over keys."""
        group = self.grain.group
        first = self._tile_rows(
            np.full(splits, cls.first * group), np.full(splits, cls.last * group)
        )
        self.plan.external.append(External(cls, int(first[0]), splits))

    def ranges(self, groups: Sequence[Group], covered: set[int], lengths: Int64) -> None:
        """Everything that no class covers: closed ranges first, then the open tails."""
        plan, grain = self.plan, self.grain
        who, start, end = [], [], []
        open_from = np.zeros(len(lengths), np.int64)
        for group in groups:
            holes, tail = _holes(group.spans, covered)
            open_from[group.members] = tail
            for low, high in holes:
                who += group.members
                start += [low] * len(group.members)
                end += [high] * len(group.members)
        work = int((lengths - open_from).sum()) + sum(end) - sum(start)
        share = -(-work * grain.kv_heads // grain.range_programs)
        piece = min(max(-(-share // 64) * 64, grain.min_range), grain.max_range)
        tails = open_from + np.maximum(0, (lengths - open_from - 1) // piece) * piece
        everyone = np.arange(len(lengths))
        closed = _cut(
            np.concatenate([np.array(who, np.int64), everyone]),
            np.concatenate([np.array(start, np.int64), open_from]),
            np.concatenate([np.array(end, np.int64), tails]),
            piece,
        )
        closed = closed[np.argsort(closed[:, 1] - closed[:, 2], kind="stable")]
        count = len(closed) + len(lengths)
        if count > plan.shape.ranges:
            raise OutOfSlotsError(f"{count} ranges in a plan for {plan.shape.ranges}")
        view = plan.view("ranges")[:count]
        view[: len(closed), :3] = closed
        view[len(closed) :, 0] = everyone
        view[len(closed) :, 1] = tails
        view[len(closed) :, 2] = -1
        view[:, 3] = self.next_row + np.arange(count) * grain.group
        self.owners.append(view[:, 0].astype(np.int64))
        self.rows.append(view[:, 3].astype(np.int64))
        self.next_row += count * grain.group
        plan.view("tails")[: len(tails)] = tails
        plan.ranges, plan.closed_ranges, plan.rows = count, len(closed), self.next_row
        longest = (closed[:, 2] - closed[:, 1]).max(initial=0)
        plan.max_range = int(max(longest, (lengths - tails).max()))
        plan.view("counts")[:4] = (count, len(closed), plan.items, self.next_row)

    def write_parts(self) -> None:
        """Give each request the list of its partials; the tail's, made last, comes last."""
        owner, row = np.concatenate(self.owners), np.concatenate(self.rows)
        by_owner = np.argsort(owner, kind="stable")
        owner, row = owner[by_owner], row[by_owner]
        count = np.bincount(owner, minlength=self.plan.batch)
        if count.max() > self.plan.shape.parts:
            raise OutOfSlotsError(f"{count.max()} partials of one request: plan too small")
        self.plan.max_parts = int(count.max())
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        self.plan.view("parts")[owner, nth] = row
        self.plan.view("part_count")[: self.plan.batch] = count - 1

    def _tile_rows(self, row0: Int64, row1: Int64) -> Int64:
        """Output rows for tiles [row0, row1), noted as partials of the requests in them."""
        group = self.grain.group
        size = (row1 - row0).astype(np.int64)
        first = self.next_row + np.cumsum(size) - size
        members = size // group
        nth = np.arange(int(members.sum())) - np.repeat(np.cumsum(members) - members, members)
        self.owners.append(self.order[np.repeat(row0 // group, members) + nth])
        self.rows.append(np.repeat(first, members) + nth * group)
        self.next_row += int(size.sum())
        return first


def _holes(spans: Sequence[Span], covered: set[int]) -> tuple[list[tuple[int, int]], int]:
    """Closed ranges of a path that no class covers, and where its open rest begins."""
    holes, at = [], 0
    for position, base, length in spans:
        if base in covered:
            if position > at:
                holes.append((at, position))
            at = position + length
    return holes, at


def _cut(who: Int64, start: Int64, end: Int64, piece: int) -> Int64:
    """Rows (request, n0, n1) of at most `piece` keys."""
    count = -(-(end - start) // piece)
    nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    low = np.repeat(start, count) + nth * piece
    high = np.minimum(low + piece, np.repeat(end, count))
    return np.stack([np.repeat(who, count), low, high], axis=1)
