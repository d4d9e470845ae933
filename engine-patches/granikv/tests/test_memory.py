"""Memory and relocations, the cases worth reading one by one."""

import numpy as np
import pytest

from granikv.errors import BadSizeError, OutOfSlotsError, RelocationError, StepOpenError
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.relocate import begin_grow, begin_reclaim, begin_shrink
from granikv.slots import SlotState


def test_first_fit_takes_the_lowest_hole_and_merges_back() -> None:
    memory = Memory(100, 60)
    slabs = [memory.alloc_hot(10) for _ in range(5)]
    memory.free_hot(slabs[1].id)
    memory.free_hot(slabs[3].id)
    assert memory.hot.free_ranges() == [(10, 10), (30, 10)]
    assert memory.alloc_hot(4).base == 10
    memory.free_hot(slabs[2].id)
    assert memory.hot.free_ranges() == [(14, 26)]
    memory.free_hot(slabs[4].id)
    assert (memory.hot.free_ranges(), memory.hot.bump) == ([], 14)


def test_cold_pressure_borrows_idle_hot_chunks_and_hot_takes_them_back() -> None:
    memory = Memory(100, 60, chunk=16)
    memory.alloc_hot(5)
    slots = memory.alloc_cold(70)
    assert memory.lent == 32
    assert (slots < 60).sum() == 30
    assert slots[slots < 60].min() == 30, "the chunk next to the slabs is filled last"
    with pytest.raises(OutOfSlotsError):
        memory.alloc_hot(24)
    memory.free_cold(slots[slots < 44])
    assert memory.alloc_hot(39).base == 5, "the idle chunk came back without a copy"
    assert memory.lent == 16


def test_reclaim_migrates_the_tokens_that_are_left() -> None:
    memory, kv = Memory(100, 60, chunk=20), FakeKV(100)
    slots = memory.alloc_cold(50)
    kv.write(slots, slots * 7)
    keep, drop = slots[slots < 60], slots[slots >= 60][:15]
    memory.free_cold(drop)
    moving = begin_reclaim(memory, 1)
    assert memory.alloc_cold(5).min() >= 60, "nothing is handed out inside the frozen chunk"
    while not moving.ready:
        kv.copy(*moving.next_copies(4))
    moves = moving.commit()
    assert memory.lent == 0
    now = moves.apply(keep, 100)
    assert now.min() >= 60
    assert np.array_equal(kv.read(now), keep * 7)


def test_a_source_freed_during_a_grow_gives_its_target_back_and_is_never_copied() -> None:
    memory = Memory(100, 20)
    slots = np.sort(memory.alloc_cold(80))
    memory.free_cold(slots[30:])
    moving = begin_grow(memory, 50)
    free = memory.cold.available
    gone = slots[:10]
    memory.free_cold(gone)
    assert memory.cold.available == free + 10, "the targets, not the frozen sources"
    moves = moving.next_copies(100)
    assert not set(moves.source.tolist()) & set(gone.tolist())
    assert moving.commit().size == 20
    assert memory.hot.size == memory.hot.ceiling == 50
    assert memory.space.count(SlotState.COLD_USED) == 20
    memory.check()


def test_a_slab_cut_during_a_shrink_keeps_only_what_is_left_of_it() -> None:
    memory = Memory(100, 60)
    first, second = memory.alloc_hot(20), memory.alloc_hot(20)
    memory.free_hot(first.id)
    moving = begin_shrink(memory, 20)
    memory.trim_hot(second.id, 5)
    assert memory.hot.alloc(15).base == 5, "the room behind the shorter target is free again"
    moves = moving.next_copies(100)
    assert moves.target.tolist() == [0, 1, 2, 3, 4]
    moving.commit()
    assert memory.hot.slabs[second.id].base == 0
    assert memory.hot.slabs[second.id].epoch == 1
    assert memory.space.count(SlotState.COLD_FREE) == 80
    memory.check()


def test_a_shrink_that_cannot_hold_the_slabs_changes_nothing() -> None:
    memory = Memory(100, 60)
    memory.alloc_hot(30)
    memory.alloc_hot(25)
    with pytest.raises(RelocationError):
        begin_shrink(memory, 50)
    memory.check()
    assert memory.hot.reservations() == {}
    assert memory.alloc_hot(5).base == 55


def test_cold_pressure_aborts_a_grow_rather_than_fail() -> None:
    memory = Memory(100, 20, chunk=10)
    begin_grow(memory, 60)
    slots = memory.alloc_cold(70)
    assert len(slots) == 70
    assert memory.relocation is None
    assert memory.counters.relocations_aborted == 1
    memory.check()


def test_nothing_structural_happens_while_a_step_is_open() -> None:
    memory = Memory(100, 20)
    slots = memory.alloc_cold(80)
    step = memory.fence.open()
    memory.free_cold(slots[:40])
    assert memory.space.count(SlotState.COLD_USED) == 80, "the open step may still read them"
    with pytest.raises(StepOpenError):
        begin_grow(memory, 40)
    memory.fence.close(step)
    moving = begin_grow(memory, 40)
    moving.next_copies(100)
    step = memory.fence.open()
    with pytest.raises(StepOpenError):
        moving.commit()
    memory.fence.close(step)
    moving.commit()


def test_sizes_are_refused_before_anything_happens() -> None:
    for total, hot, chunk in ((0, 0, 1), (10, 11, 1), (10, -1, 1), (10, 5, 0)):
        with pytest.raises(BadSizeError):
            Memory(total, hot, chunk)
    memory = Memory(10, 5)
    for size in (5, 11, 3):
        with pytest.raises(BadSizeError):
            begin_grow(memory, size)
    for size in (5, -1, 7):
        with pytest.raises(BadSizeError):
            begin_shrink(memory, size)
    with pytest.raises(BadSizeError):
        begin_reclaim(memory, 0)
    with pytest.raises(RelocationError):
        begin_reclaim(memory, 1)
