"""Plans are pure: every (row, key) exactly once, whatever the classes, the cut and the paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from granikv.cuts import PIECE, choose_splits, lay_out
from granikv.errors import BadSizeError, OutOfSlotsError
from granikv.plan import find_classes, find_groups, make_plan
from granikv.shapes import Class, Grain, Path, PlanShape, Running, StepPlan

BASES = {(0,): (10, 100), (1,): (200, 7), (0, 0): (300, 64), (0, 1): (400, 33), (2,): (500, 700)}


def requests(picks: list[tuple[int, int]]) -> list[Running]:
    """(leaf of the little tree, suffix length) -> running requests."""
    leaves: list[tuple[int, ...]] = [(), (0,), (1,), (0, 0), (0, 1), (2,)]
    made = []
    for leaf, suffix in picks:
        at, spans = 0, []
        for depth in range(len(leaves[leaf])):
            base, length = BASES[leaves[leaf][: depth + 1]]
            spans.append((at, base, length))
            at += length
        made.append(Running(tuple(spans), at + suffix))
    return made


def coverage(plan: StepPlan, running: list[Running], group: int) -> list[np.ndarray]:
    """How often each key of each request (and head of its group) is read."""
    seen = [np.zeros((group, r.length), int) for r in running]
    order = plan.view("order")
    pointers = plan.view("workers")
    assert pointers[0] == 0
    assert (np.diff(pointers) >= 0).all()
    assert pointers[plan.workers] == plan.items
    for row0, row1, base, n0, n1, _ in plan.view("items")[: plan.items, :6]:
        assert 0 <= n0 < n1
        for row in range(row0, row1):
            request = order[row // group]
            (at,) = [p for p, b, _ in running[request].spans if b == base]
            seen[request][row % group, at + n0 : at + n1] += 1
    for external in plan.external:
        cls = external.cls
        for position in range(cls.first, cls.last):
            request = order[position]
            (at,) = [p for p, b, _ in running[request].spans if b == cls.base]
            seen[request][:, at : at + cls.length] += 1
    for request, n0, n1, _ in plan.view("ranges")[: plan.ranges]:
        end = running[request].length if n1 < 0 else n1
        seen[request][:, n0:end] += 1
    return seen


def rows_are_disjoint(plan: StepPlan, running: list[Running], group: int) -> None:
    """Each partial's output rows belong to it alone, and its request knows them."""
    parts, count = plan.view("parts"), plan.view("part_count")
    rows = [
        parts[r, j] + g
        for r in range(len(running))
        for j in range(count[r] + 1)
        for g in range(group)
    ]
    assert sorted(rows) == list(range(plan.rows))


leaves = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), min_size=1, max_size=24)


@settings(max_examples=200, deadline=None)
@given(
    picks=leaves,
    group=st.integers(1, 8),
    slots=st.integers(1, 40),
    programs=st.integers(1, 60),
    paths=st.lists(st.sampled_from(list(Path)), min_size=5, max_size=5),
)
def test_every_key_is_read_once(
    picks: list[tuple[int, int]], group: int, slots: int, programs: int, paths: list[Path]
) -> None:
    running = requests(picks)
    grain = Grain(1, group, slots=slots, range_programs=programs)
    by_base = dict(zip(sorted(b for b, _ in BASES.values()), paths, strict=True))
    plan = make_plan(
        running, grain, PlanShape(24, grain.workers), lambda c: by_base[c.base], lambda _: 2
    )
    splits = {e.cls.base: e.splits for e in plan.external}
    assert all(splits[b] == (2 if by_base[b] is Path.CUDNN else 1) for b in splits)
    for seen in coverage(plan, running, group):
        assert (seen == 1).all()
    rows_are_disjoint(plan, running, group)


def test_classes_are_adjacent_and_nested() -> None:
    running = requests([(3, 1), (5, 0), (1, 2), (0, 9), (3, 4), (4, 0)])
    groups = find_groups(running)
    order = [i for g in groups for i in g.members]
    classes = find_classes(groups)
    found = {(c.base, tuple(sorted(order[c.first : c.last]))) for c in classes}
    assert found == {(10, (0, 2, 4, 5)), (300, (0, 4)), (400, (5,)), (500, (1,))}


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 300)), max_size=4),
    st.integers(1, 66),
    st.integers(1, 6),
)
def test_every_block_of_every_tile_is_one_workers(
    jobs: list[tuple[int, int]], workers: int, min_blocks: int
) -> None:
    jobs = sorted(jobs, key=lambda job: -job[1])
    hands = lay_out(tuple(jobs), workers, min_blocks)
    assert len(hands) == workers
    seen = [np.zeros(job, np.int64) for job in jobs]
    for which, tile, first, last in (piece for hand in hands for piece in hand):
        assert first < last
        seen[which][tile, first:last] += 1
    for found in seen:
        assert (found == 1).all()


def span(tiles: int, blocks: int = 128, workers: int = 33) -> float:
    hands = lay_out(((tiles, blocks),), workers, 4)
    return max(sum(p[3] - p[2] + PIECE for p in hand) for hand in hands)


def test_equal_work_is_cut_into_full_waves() -> None:
    """B = 256 in two pieces a tile on 33 workers; B = 192 must not cost the same."""
    assert choose_splits(((16, 128),), 33, 4)[1] == (2,)
    assert span(16) == 64 + PIECE
    assert span(12) / span(16) < 0.78
    assert span(24) / span(32) < 0.78


def test_left_over_workers_share_the_rest_of_every_tile() -> None:
    hands = lay_out(((12, 128),), 33, 4)
    fronts, rest = hands[:24], hands[24:]
    assert {hand[0][2:] for hand in fronts} == {(0, fronts[0][0][3]), fronts[12][0][2:]}
    assert all(len(hand) == 1 for hand in fronts)
    assert max(map(len, rest)) <= 3


def test_a_short_class_is_not_cut_into_crumbs() -> None:
    assert choose_splits(((1, 2),), 33, 4)[1] == (1,)
    assert choose_splits((), 33, 4) == (0.0, ())
    assert lay_out((), 3, 4) == ((), (), ())
    assert [hand for hand in lay_out(((1, 2),), 33, 4) if hand] == [((0, 0, 0, 2),)]


def test_the_block_is_the_same_for_the_same_requests() -> None:
    running = requests([(3, 1), (5, 0), (1, 2), (0, 9)])
    shape = PlanShape(8, 4)
    grain = Grain(2, 4, slots=8)
    one, two = (make_plan(running, grain, shape) for _ in range(2))
    assert np.array_equal(one.block, two.block)


def test_what_does_not_fit_is_refused() -> None:
    running = requests([(5, 300)] * 4)
    grain = Grain(1, 8, slots=8, range_programs=400, min_blocks=1)
    with pytest.raises(BadSizeError):
        make_plan(running, grain, PlanShape(3, 8))
    with pytest.raises(BadSizeError):
        make_plan([], grain, PlanShape(3, 8))
    for small in (
        PlanShape(4, 8, items=2),
        PlanShape(4, 8, ranges=5),
        PlanShape(4, 8, parts=2),
        PlanShape(4, 2),
    ):
        with pytest.raises(OutOfSlotsError):
            make_plan(running, grain, small)
    with pytest.raises(BadSizeError):
        Grain(8, 9)
    assert Class(1, 4, 0, 9).members == 3
