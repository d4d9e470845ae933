"""Admission, eviction windows and the tree's small cases."""

import numpy as np
import pytest

from granikv.cache import PrefixCache
from granikv.errors import BadFreeError, BadSizeError, RelocationError, StepOpenError
from granikv.fakekv import FakeKV
from granikv.hot import HotPool
from granikv.memory import Memory
from granikv.policy import Admission, Candidate, HotnessEviction, LruEviction, Verdict
from granikv.radix import RadixIndex
from granikv.relocate import Moves
from granikv.room import cheapest_window
from granikv.segments import HotSegment
from granikv.slots import SlotSpace
from granikv.upkeep import Upkeep


def gain(n: float, length: int) -> float:
    return max(0.0, (n * length - 16_000.0) / 1000.0)


def node(length: int, refs: int, hits: float = 1.0, last_use: float = 0.0) -> Candidate:
    return Candidate(length, refs, hits, last_use)


@pytest.mark.parametrize(
    ("length", "refs", "verdict"),
    [
        (63, 100, Verdict.COLD),
        (8192, 1, Verdict.DEFER),
        (512, 8, Verdict.DEFER),
        (8192, 8, Verdict.HOT),
        (512, 64, Verdict.HOT),
        (8192, 2, Verdict.HOT),
        (16_001, 0, Verdict.DEFER),
    ],
)
def test_admission_waits_until_it_pays(length: int, refs: int, verdict: Verdict) -> None:
    assert Admission(gain).decide(node(length, refs)).verdict is verdict


def test_a_copy_that_is_never_repaid_is_deferred() -> None:
    slow = Admission(lambda n, length: 0.01, repay_steps=10.0)
    assert "repaid" in slow.decide(node(8192, 8)).reason


def pool(*lengths: int, free: int = 0) -> HotPool:
    hot = HotPool(SlotSpace(sum(lengths) + free), sum(lengths) + free)
    for length in lengths:
        hot.alloc(length)
    return hot


def test_the_victims_are_one_contiguous_run() -> None:
    hot = pool(10, 5, 20, 10)
    idle = {
        0: [node(10, 0, last_use=1)],
        2: [node(20, 0, last_use=3)],
        3: [node(10, 0, last_use=2)],
    }
    assert cheapest_window(hot, 10, idle, LruEviction().cost) == [0]
    assert cheapest_window(hot, 20, idle, LruEviction().cost) == [2], "0 and 3 are older, but apart"
    assert cheapest_window(hot, 30, idle, LruEviction().cost) == [2, 3]
    assert cheapest_window(hot, 31, idle, LruEviction().cost) == []
    hot.free(1)
    assert cheapest_window(hot, 15, idle, LruEviction().cost) == [0]


def test_hotness_keeps_the_slab_that_saves_more() -> None:
    policy = HotnessEviction(gain)
    hot = pool(8192, 8192)
    idle = {0: [node(8192, 0, hits=50, last_use=1)], 1: [node(8192, 0, hits=3, last_use=9)]}
    assert cheapest_window(hot, 8192, idle, policy.cost) == [1]
    assert cheapest_window(hot, 8192, idle, LruEviction().cost) == [0]
    assert not policy.admits(node(8192, 2, hits=2), idle[0])
    assert policy.admits(node(8192, 4, hits=4), idle[1])
    assert policy.admits(node(8192, 2, hits=0), [])


def test_hits_decay_by_the_half_life() -> None:
    tree = RadixIndex(half_life=10.0)
    lease = tree.acquire(np.array([1, 2]), 0.0)
    tree.insert(lease, np.array([1, 2]), np.array([5, 6]), 0.0)
    tree.release(lease, 0.0)
    lease = tree.acquire(np.array([1, 2]), 0.0)
    (only,) = tree.nodes()
    assert tree.hits(only, 0.0) == 1.0
    assert tree.hits(only, 20.0) == 0.25
    with pytest.raises(BadFreeError):
        tree.remove(only)
    with pytest.raises(BadSizeError):
        tree.insert(lease, np.array([1, 2, 3]), np.array([5, 6]), 0.0)


def serve(cache: PrefixCache, kv: FakeKV, prompt: list[int], now: float):  # type: ignore[no-untyped-def]
    tokens = np.array(prompt)
    lease = cache.acquire(tokens, now)
    slots = cache.slots(lease)
    if len(prompt) > lease.matched:
        fresh = cache.reserve(len(prompt) - lease.matched)
        kv.write(fresh, tokens[lease.matched :])
        slots = np.concatenate([slots, fresh])
    return lease, tokens, cache.publish(lease, tokens, slots, now)


def test_a_split_slab_is_trimmed_leaf_by_leaf() -> None:
    memory, kv = Memory(200, 100), FakeKV(200)
    cache = PrefixCache(memory, kv)
    upkeep = Upkeep(
        cache, admission=Admission(lambda n, _: n, min_tokens=4), eviction=LruEviction()
    )
    prompt = list(range(100, 140))
    leases = [serve(cache, kv, prompt, 0.0)[0] for _ in range(3)]
    moves = upkeep.run(0.0, 100)
    assert moves.size == 40
    assert cache.slots(leases[0]).tolist() == list(range(40))
    other = serve(cache, kv, [*prompt[:30], 7, 8], 1.0)[0]
    parts = [n.segment for n in cache.tree.nodes() if isinstance(n.segment, HotSegment)]
    assert sorted((p.offset, p.length) for p in parts) == [(0, 30), (30, 10)]
    for lease in leases:
        cache.tree.release(lease, 2.0)
    (tail,) = [n for n in cache.tree.nodes() if n.hot and not n.refs]
    cache.drop(tail)
    (slab,) = memory.hot.slabs.values()
    assert (slab.base, slab.length) == (0, 30)
    assert kv.read(cache.slots(other)).tolist() == [*prompt[:30], 7, 8]


def test_loans_come_back_when_a_prefix_pays() -> None:
    memory, kv = Memory(120, 60, chunk=20), FakeKV(120)
    cache = PrefixCache(memory, kv)
    upkeep = Upkeep(
        cache, admission=Admission(lambda n, _: n, min_tokens=4), eviction=LruEviction()
    )
    for i in range(5):  # idle leaves fill COLD and borrow HOT
        lease, tokens, slots = serve(cache, kv, [i, *range(10, 29)], float(i))
        cache.finish(lease, tokens, slots, float(i))
    assert memory.lent == 40
    leases = [serve(cache, kv, list(range(200, 240)), 9.0)[0] for _ in range(2)]
    for _ in range(40):
        upkeep.run(9.0, 40)
    assert memory.lent == 20, "no more than the slab needs"
    (hot,) = [n for n in cache.tree.nodes() if n.hot]
    assert hot.refs == 2
    assert kv.read(cache.slots(leases[1])).tolist() == list(range(200, 240))


def test_shrink_pushes_idle_slabs_out_and_keeps_the_held_ones() -> None:
    memory, kv = Memory(200, 100), FakeKV(200)
    cache = PrefixCache(memory, kv)
    upkeep = Upkeep(
        cache, admission=Admission(lambda n, _: n, min_tokens=4), eviction=LruEviction()
    )
    idle = [serve(cache, kv, list(range(1000, 1040)), 0.0) for _ in range(2)]
    held = [serve(cache, kv, list(range(2000, 2040)), 0.0)[0] for _ in range(2)]
    upkeep.run(0.0, 200)
    for lease, tokens, slots in idle:
        cache.finish(lease, tokens, cache.slots(lease), 1.0)
        del tokens, slots
    moving = upkeep.shrink(40)
    step = memory.fence.open()
    with pytest.raises(StepOpenError):
        upkeep.run(2.0, 8)
    memory.fence.close(step)
    total = 0
    while not moving.done:
        total += upkeep.run(2.0, 8).size
    assert memory.hot.size == 40
    assert kv.read(cache.slots(held[0])).tolist() == list(range(2000, 2040))
    with pytest.raises(RelocationError):
        upkeep.shrink(39)
    assert memory.hot.size == 40


def test_moves_apply_to_any_table() -> None:
    moves = Moves(np.array([1, 2]), np.array([7, 8]))
    assert moves.apply(np.array([0, 1, 2, 3]), 10).tolist() == [0, 7, 8, 3]
