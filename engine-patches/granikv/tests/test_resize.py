"""The fraction: proposals as a table, the controller over a live cache."""

import numpy as np
import pytest

from granikv.cache import PrefixCache
from granikv.errors import BadSizeError
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.policy import Admission, LruEviction
from granikv.resize import FpController, Limits, Signals, percent_of, propose, slots_of
from granikv.upkeep import Upkeep


def signals(**changes: int) -> Signals:
    base = {
        "total": 1000,
        "hot_size": 200,
        "hot_used": 100,
        "hot_wanted": 100,
        "hot_failed": 0,
        "cold_low": 500,
        "cold_failed": 0,
        "preempted": 0,
    }
    return Signals(**(base | changes))


@pytest.mark.parametrize(
    ("changes", "percent"),
    [
        ({}, None),
        ({"hot_failed": 80, "hot_wanted": 230}, 27),
        ({"hot_failed": 80, "hot_wanted": 700}, 50),
        ({"hot_failed": 80, "hot_wanted": 230, "preempted": 1}, 27),
        ({"hot_failed": 80, "hot_wanted": 150}, None),
        ({"cold_low": 10}, None),
        ({"cold_low": 10, "hot_stuck": 40}, 16),
        ({"cold_failed": 2, "hot_wanted": 150, "hot_stuck": 100}, 18),
        ({"cold_failed": 2, "hot_wanted": 0, "hot_stuck": 190}, 5),
        ({"cold_failed": 2, "hot_wanted": 0, "hot_size": 60, "hot_stuck": 60}, None),
        ({"cold_failed": 2, "hot_wanted": 170, "hot_stuck": 200}, None),
        ({"hot_failed": 9, "hot_wanted": 990, "hot_size": 790}, None),
    ],
)
def test_proposals(changes: dict[str, int], percent: int | None) -> None:
    proposal = propose(signals(**changes), Limits())
    assert (proposal.percent if proposal else None) == percent


def test_percentages_round_trip() -> None:
    for total in (1000, 997, 12345):
        for percent in range(5, 81):
            assert percent_of(slots_of(percent, total), total) == percent


def controller(**changes: object) -> FpController:
    memory = Memory(1000, 200, chunk=16)
    cache = PrefixCache(memory, FakeKV(1000))
    upkeep = Upkeep(cache, admission=Admission(lambda n, _: n), eviction=LruEviction())
    return FpController(upkeep, max_slots_per_step=20, **changes)  # type: ignore[arg-type]


def drive(fp: FpController) -> int:
    steps = 0
    while fp.busy:
        fp.upkeep.run(0.0, fp.max_slots_per_step)
        fp.tick()
        steps += 1
    return steps


def test_a_resize_there_and_back_under_a_cap() -> None:
    fp = controller()
    memory = fp.upkeep.cache.memory
    slots = memory.alloc_cold(790)
    memory.free_cold(slots[300:700])
    assert fp.resize(50, 0.0)
    steps = drive(fp)
    assert steps == pytest.approx(
        -(-((slots < 500) & np.isin(slots, slots[:300])).sum() // 20), abs=20
    )
    assert (fp.percent, memory.hot.size) == (50, 500)
    assert fp.resize(20, 1.0)
    drive(fp)
    assert memory.hot.size == 200
    assert (fp.counters.begun, fp.counters.committed, fp.counters.rolled_back) == (2, 2, 0)
    memory.check()


def test_a_resize_without_room_is_refused_with_its_reason() -> None:
    fp = controller()
    memory = fp.upkeep.cache.memory
    memory.alloc_cold(790)
    before = memory.space.state.copy()
    assert not fp.resize(80, 0.0)
    assert "refused" in fp.last_reason
    assert np.array_equal(memory.space.state, before)
    with pytest.raises(BadSizeError):
        fp.resize(81, 0.0)


def test_a_resize_that_takes_too_long_is_rolled_back_exactly() -> None:
    fp = controller(max_steps=2)
    memory = fp.upkeep.cache.memory
    slots = np.sort(memory.alloc_cold(800))
    memory.free_cold(slots[400:])
    before = memory.space.state.copy()
    assert fp.resize(50, 0.0)
    drive(fp)
    assert fp.counters.rolled_back == 1
    assert np.array_equal(memory.space.state, before)


def test_a_new_wish_replaces_the_resize_under_way() -> None:
    fp = controller()
    memory = fp.upkeep.cache.memory
    memory.free_cold(np.sort(memory.alloc_cold(790))[400:])
    assert fp.resize(50, 0.0)
    fp.upkeep.run(0.0, 20)
    assert fp.resize(30, 1.0)
    drive(fp)
    assert memory.hot.size == 300
    assert (fp.counters.committed, fp.counters.rolled_back) == (1, 1)


def test_a_wish_for_what_is_in_force_withdraws_the_resize_under_way() -> None:
    fp = controller()
    memory = fp.upkeep.cache.memory
    memory.free_cold(np.sort(memory.alloc_cold(790))[400:])
    before = memory.space.state.copy()
    assert fp.resize(50, 0.0)
    fp.upkeep.run(0.0, 20)
    assert fp.resize(20, 1.0)
    assert not fp.busy
    assert fp.last_reason == "20 % is in force"
    fp.upkeep.run(1.0, 20)
    fp.tick()
    assert (fp.percent, fp.counters.committed, fp.counters.rolled_back) == (20, 0, 1)
    assert np.array_equal(memory.space.state, before)


def test_own_changes_need_repetition_and_rest() -> None:
    fp = controller(dwell=10.0)
    wants = signals(hot_failed=50, hot_wanted=260)
    assert [fp.observe(wants, t) is not None for t in (0.0, 1.0)] == [False, False]
    assert fp.observe(signals(), 2.0) is None
    assert [fp.observe(wants, t) is not None for t in (3.0, 4.0, 5.0)] == [False, False, True]
    drive(fp)
    assert fp.percent == 30
    wants = signals(hot_failed=50, hot_wanted=400, hot_size=300)
    assert [fp.observe(wants, t) is not None for t in (6.0, 6.5, 7.0, 7.4)] == [False] * 4
    assert fp.observe(wants, 7.5) is not None, "a quarter of the dwell before it grows"
    drive(fp)
    holes = signals(cold_low=0, hot_size=460, hot_wanted=0, hot_stuck=200)
    assert [fp.observe(holes, t) is not None for t in (8.0, 9.0, 17.0)] == [False] * 3
    assert fp.observe(holes, 17.5) is not None, "all of it before it shrinks"


def test_with_cold_nearly_full_it_goes_a_part_of_the_way() -> None:
    fp = controller(dwell=0.0, repeats=1)
    memory = fp.upkeep.cache.memory
    memory.alloc_cold(700)
    wants = signals(hot_failed=50, hot_wanted=400)
    taken = fp.observe(wants, 0.0)
    assert taken is not None
    assert 20 < taken.percent < 46, "all of it does not fit"
    drive(fp)
    assert fp.percent == taken.percent
    assert fp.counters.refused >= 1
    memory.check()


def test_bounds_outside_the_paper_s_range_are_refused() -> None:
    for low, high in ((4, 80), (5, 81), (50, 40)):
        with pytest.raises(BadSizeError):
            Limits(min_percent=low, max_percent=high)
