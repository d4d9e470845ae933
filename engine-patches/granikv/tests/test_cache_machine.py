"""Invariants 5-8 of the design: tree and cache against a brute-force model with a fake KV."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from granikv.cache import PrefixCache
from granikv.errors import BadFreeError, OutOfSlotsError, RelocationError, StepOpenError
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.policy import Admission, HotnessEviction, LruEviction
from granikv.radix import Lease
from granikv.relocate import Moves
from granikv.segments import ColdSegment, HotSegment
from granikv.slots import SlotState
from granikv.upkeep import Upkeep

TOTAL = 96


def gain(n: float, length: int) -> float:
    return max(0.0, n * length - 6.0)


def identity(tokens: list[int], at: int) -> int:
    """One number for "token `at` after this history": what KV stands for."""
    number = 1
    for token in tokens[: at + 1]:
        number = (number * 5 + token + 1) % (2**40)
    return number


class Request:
    def __init__(self, tokens: list[int], lease: Lease, slots: np.ndarray) -> None:
        self.tokens, self.lease, self.slots = tokens, lease, slots
        self.published = lease.matched


class CacheMachine(RuleBasedStateMachine):
    @initialize(hot=st.integers(0, 60), lru=st.booleans(), chunk=st.integers(2, 9))
    def start(self, hot: int, lru: bool, chunk: int) -> None:
        self.memory = Memory(TOTAL, hot, chunk)
        self.kv = FakeKV(TOTAL, layers=2)
        self.cache = PrefixCache(self.memory, self.kv, half_life=8.0)
        self.upkeep = Upkeep(
            self.cache,
            admission=Admission(gain, min_tokens=2),
            eviction=LruEviction() if lru else HotnessEviction(gain),
        )
        self.requests: list[Request] = []
        self.now = 0.0
        self.step: int | None = None

    def compute(self, request: Request, tokens: list[int]) -> bool:
        """Prefill or decode these tokens at the request's end."""
        if not tokens:
            return True
        try:
            slots = self.cache.reserve(len(tokens))
        except OutOfSlotsError:
            return False
        first = len(request.tokens)
        request.tokens = request.tokens + tokens
        request.slots = np.concatenate([request.slots, slots])
        ids = [identity(request.tokens, i) for i in range(first, len(request.tokens))]
        self.kv.write(slots, np.array(ids))
        return True

    def apply(self, moves: Moves) -> None:
        for request in self.requests:
            request.slots = moves.apply(request.slots, self.memory.space.total)

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=14))
    def arrive(self, tokens: list[int]) -> None:
        self.now += 1
        want = np.array(tokens)
        matched = self.cache.tree.match(want)
        lease = self.cache.acquire(want, self.now)
        assert lease.matched == matched
        slots = self.cache.slots(lease)
        assert len(slots) == matched
        request = Request(tokens[:matched], lease, slots)
        self.requests.append(request)
        if not self.compute(request, tokens[matched:]):
            self.requests.remove(request)
            self.cache.abandon(lease, slots, self.now)

    @precondition(lambda self: self.requests)
    @rule(index=st.integers(0, 9), tokens=st.lists(st.integers(0, 2), min_size=1, max_size=4))
    def decode(self, index: int, tokens: list[int]) -> None:
        self.compute(self.requests[index % len(self.requests)], tokens)

    @precondition(lambda self: self.requests)
    @rule(index=st.integers(0, 9))
    def publish(self, index: int) -> None:
        request = self.requests[index % len(self.requests)]
        request.slots = self.cache.publish(
            request.lease, np.array(request.tokens), request.slots, self.now
        )
        assert len(request.slots) == len(request.tokens)

    @precondition(lambda self: self.requests)
    @rule(index=st.integers(0, 9), abort=st.booleans())
    def leave(self, index: int, abort: bool) -> None:
        self.now += 1
        request = self.requests.pop(index % len(self.requests))
        if abort:
            self.cache.abandon(request.lease, request.slots, self.now)
        else:
            self.cache.finish(request.lease, np.array(request.tokens), request.slots, self.now)
        with pytest.raises(BadFreeError):
            self.cache.tree.release(request.lease, self.now)

    @rule(budget=st.integers(1, 60))
    def maintain(self, budget: int) -> None:
        if self.step is not None:
            with pytest.raises(StepOpenError):
                self.upkeep.run(self.now, budget)
            return
        held = {id(n) for n in self.cache.tree.nodes(held=True) if n.hot}
        self.apply(self.upkeep.run(self.now, budget))
        still = {id(n) for n in self.cache.tree.nodes(held=True) if n.hot}
        assert held <= still, "a node in use lost its slab"

    @rule(which=st.sampled_from(["reclaim", "grow", "shrink"]), by=st.integers(1, 30))
    def relocate(self, which: str, by: int) -> None:
        if self.step is not None or self.memory.relocation is not None:
            return
        size = self.memory.hot.size
        try:
            if which == "reclaim":
                self.upkeep.reclaim(by)
            elif which == "grow":
                self.upkeep.grow(min(size + by, TOTAL))
            else:
                self.upkeep.shrink(max(size - by, 0))
        except (RelocationError, ValueError):
            return

    @precondition(lambda self: self.memory.relocation is not None)
    @rule()
    def abort(self) -> None:
        self.upkeep.abort()
        assert self.memory.relocation is None

    @rule()
    def toggle_step(self) -> None:
        if self.step is None:
            self.step = self.memory.fence.open()
        else:
            self.memory.fence.close(self.step)
            self.step = None

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.memory.check()
        self.cache.tree.check()
        owned: list[int] = []
        for node in self.cache.tree.nodes():
            history = [t for part in node.path() for t in part.tokens.tolist()]
            first = len(history) - node.length
            slots = self.cache.segment_slots(node.segment)
            owned += slots.tolist()
            want = [identity(history, i) for i in range(first, len(history))]
            assert self.kv.read(slots, 0).tolist() == want
            assert self.kv.read(slots, 1).tolist() == want
            ends = sum(
                len(r.lease.node.path()) and node in r.lease.node.path() for r in self.requests
            )
            assert node.refs == ends, "refs are not the leases at or below"
            assert isinstance(node.segment, HotSegment | ColdSegment)
        for request in self.requests:
            want = [identity(request.tokens, i) for i in range(len(request.tokens))]
            assert self.kv.read(request.slots).tolist() == want
            owned += request.slots[request.lease.matched :].tolist()
        assert len(owned) == len(set(owned)), "two owners of one slot"
        if self.step is None and self.memory.relocation is None:
            used = [SlotState.HOT_SLAB, SlotState.DONATED_USED, SlotState.COLD_USED]
            assert len(owned) == sum(self.memory.space.count(s) for s in used), "a leak"

    @rule(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=14))
    def match_is_the_longest_prefix(self, tokens: list[int]) -> None:
        best = 0
        for node in self.cache.tree.nodes():
            history = [t for part in node.path() for t in part.tokens.tolist()]
            same = 0
            for a, b in zip(history, tokens, strict=False):
                if a != b:
                    break
                same += 1
            best = max(best, same)
        assert self.cache.tree.match(np.array(tokens)) == best


TestCache = CacheMachine.TestCase
TestCache.settings = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
