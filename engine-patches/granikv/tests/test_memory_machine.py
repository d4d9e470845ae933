"""Invariants 1-4 and 7-9 of the design: Memory and relocations against a naive bitmap model."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from granikv.errors import (
    BadFreeError,
    BadSizeError,
    OutOfSlotsError,
    RelocationError,
    StepOpenError,
)
from granikv.fakekv import FakeKV
from granikv.memory import Memory
from granikv.relocate import begin_grow, begin_reclaim, begin_shrink
from granikv.slots import SlotState


def fingerprint(memory: Memory) -> tuple[object, ...]:
    """Everything that a failed or rolled back operation must leave alone."""
    hot, cold = memory.hot, memory.cold
    return (
        memory.space.state.tobytes(),
        tuple(sorted((s.id, s.base, s.length, s.epoch) for s in hot.slabs.values())),
        tuple(hot.free_ranges()),
        hot.bump,
        hot.size,
        hot.ceiling,
        tuple(sorted(hot.reservations().items())),
        tuple(np.sort(cold._own.view())),
        tuple(np.sort(cold._lent.view())),
    )


class MemoryMachine(RuleBasedStateMachine):
    """Tokens are numbered; the model knows which slot each lives in, and the fake KV agrees."""

    cold = Bundle("cold")
    slabs = Bundle("slabs")

    @initialize(total=st.integers(20, 60), percent=st.integers(0, 80), chunk=st.integers(2, 9))
    def start(self, total: int, percent: int, chunk: int) -> None:
        self.total = total
        self.memory = Memory(total, total * percent // 100, chunk)
        self.kv = FakeKV(total, layers=2)
        self.where: dict[int, int] = {}  # token -> slot
        self.hot: dict[int, tuple[list[int], int]] = {}  # slab id -> tokens, epoch seen
        self.steps: list[int] = []
        self.dead: list[tuple[int, list[int]]] = []  # (open steps at the time, slots) still pinned
        self.token = 0
        self.before: tuple[object, ...] | None = None  # at begin, when nothing happened since

    def fresh(self, slots: np.ndarray) -> list[int]:
        tokens = list(range(self.token, self.token + len(slots)))
        self.token += len(slots)
        self.kv.write(slots, np.array(tokens))
        self.where.update(zip(tokens, slots.tolist(), strict=True))
        return tokens

    def forget(self, tokens: list[int]) -> None:
        slots = [self.where.pop(t) for t in tokens]
        if self.steps:
            self.dead.append((max(self.steps), slots))
        self.before = None

    @rule(target=cold, count=st.integers(1, 20))
    def alloc_cold(self, count: int) -> list[int]:
        before, was = fingerprint(self.memory), self.memory.relocation
        try:
            slots = self.memory.alloc_cold(count)
        except OutOfSlotsError:
            if was is None:
                assert fingerprint(self.memory) == before
                free = [SlotState.COLD_FREE, SlotState.DONATED_FREE]
                idle = (self.memory.hot.ceiling - self.memory.hot.bump) // self.memory.chunk
                room = sum(self.memory.space.count(s) for s in free) + idle * self.memory.chunk
                assert room < count
            return []
        assert len(set(slots.tolist())) == count
        assert not set(slots.tolist()) & set(self.where.values())
        pinned = {s for _, slots in self.dead for s in slots}
        assert not set(slots.tolist()) & pinned, "a slot that an open step reads was handed out"
        self.before = None
        return self.fresh(slots)

    @rule(tokens=consumes(cold))
    def free_cold(self, tokens: list[int]) -> None:
        if not tokens:
            return
        slots = np.array([self.where[t] for t in tokens])
        self.memory.free_cold(slots)
        self.forget(tokens)
        before = fingerprint(self.memory)
        with pytest.raises(BadFreeError):
            self.memory.free_cold(slots)
        assert fingerprint(self.memory) == before

    @rule(target=slabs, length=st.integers(1, 25))
    def alloc_hot(self, length: int) -> int:
        state = self.memory.space.state.tolist()
        try:
            slab = self.memory.alloc_hot(length)
        except OutOfSlotsError:
            now = self.memory.space.state.tolist()
            frozen = self.memory.hot._frozen
            limit = self.memory.hot.ceiling if frozen is None else min(frozen, len(now))
            run = best = 0
            for s in now[: min(limit, self.memory.hot.ceiling)]:
                run = run + 1 if s == SlotState.HOT_FREE else 0
                best = max(best, run)
            assert best < length
            return -1
        assert slab.length == length
        assert all(
            s in (SlotState.HOT_FREE, SlotState.DONATED_FREE) for s in state[slab.base : slab.end]
        )
        self.hot[slab.id] = (self.fresh(np.arange(slab.base, slab.end)), slab.epoch)
        self.before = None
        return slab.id

    @rule(slab_id=consumes(slabs))
    def free_hot(self, slab_id: int) -> None:
        if slab_id < 0:
            return
        self.memory.free_hot(slab_id)
        self.forget(self.hot.pop(slab_id)[0])
        before = fingerprint(self.memory)
        with pytest.raises(BadFreeError):
            self.memory.free_hot(slab_id)
        assert fingerprint(self.memory) == before

    @rule(slab_id=slabs, keep=st.integers(1, 25))
    def trim_hot(self, slab_id: int, keep: int) -> None:
        if slab_id not in self.hot:
            return
        tokens, epoch = self.hot[slab_id]
        if keep > len(tokens):
            with pytest.raises(BadSizeError):
                self.memory.trim_hot(slab_id, keep)
            return
        self.memory.trim_hot(slab_id, keep)
        self.hot[slab_id] = (tokens[:keep], epoch)
        if tokens[keep:]:
            self.forget(tokens[keep:])

    @rule(slot=st.integers(0, 59), size=st.integers(-3, 0))
    def nonsense(self, slot: int, size: int) -> None:
        slot %= self.total
        before = fingerprint(self.memory)
        if slot not in self.where.values():
            with pytest.raises(BadFreeError):
                self.memory.free_cold(np.array([slot]))
        for slab in self.memory.hot.slabs.values():
            with pytest.raises(BadFreeError):
                self.memory.free_cold(np.array([slab.base]))
        for call in (self.memory.alloc_cold, self.memory.alloc_hot):
            with pytest.raises(BadSizeError):
                call(size)
        with pytest.raises(BadFreeError):
            self.memory.free_hot(10**6)
        with pytest.raises(BadSizeError):
            self.memory.free_cold(np.empty(0, np.int64))
        assert fingerprint(self.memory) == before

    @rule(chunks=st.integers(1, 3))
    def lend(self, chunks: int) -> None:
        lent = self.memory.lend(chunks)
        self.before = None if lent else self.before

    @rule(chunks=st.integers(1, 3))
    def reclaim_idle(self, chunks: int) -> None:
        taken = self.memory.reclaim_idle(chunks)
        self.before = None if taken else self.before

    @precondition(lambda self: self.memory.relocation is None)
    @rule(which=st.sampled_from(["reclaim", "grow", "grow", "shrink"]), by=st.integers(0, 20))
    def begin(self, which: str, by: int) -> None:
        before = fingerprint(self.memory)
        size = self.memory.hot.size + (by if which == "grow" else -by)
        try:
            if which == "reclaim":
                begin_reclaim(self.memory, by)
            else:
                (begin_grow if which == "grow" else begin_shrink)(self.memory, size)
        except (RelocationError, StepOpenError, BadSizeError):
            assert fingerprint(self.memory) == before
        else:
            self.before = before

    @precondition(lambda self: self.memory.relocation is not None)
    @rule(cold=cold)
    def free_a_source(self, cold: list[int]) -> None:
        """Frees a token of the range under way, if one of this batch lies in it."""
        moving = self.memory.relocation
        hit = [t for t in cold if t in self.where and moving.low <= self.where[t] < moving.high]
        if hit and moving.kind != "shrink":
            slots = np.array([self.where[t] for t in hit])
            self.memory.free_cold(slots)
            self.forget(hit)
            for token in hit:
                cold.remove(token)

    @precondition(lambda self: self.memory.relocation is not None)
    @rule(cap=st.integers(1, 30))
    def copy(self, cap: int) -> None:
        moves = self.memory.relocation.next_copies(cap)
        assert moves.size <= cap
        assert not set(moves.source.tolist()) & set(moves.target.tolist())
        self.kv.copy(*moves)

    @precondition(lambda self: self.memory.relocation is not None)
    @rule()
    def commit(self) -> None:
        moving = self.memory.relocation
        before = fingerprint(self.memory)
        try:
            moves = moving.commit()
        except (RelocationError, StepOpenError) as error:
            assert isinstance(error, StepOpenError) == moving.ready
            assert fingerprint(self.memory) == before
            return
        assert not self.steps
        self.before = None
        tokens = list(self.where)
        old = np.array([self.where[t] for t in tokens], np.int64)
        new = moves.apply(old, self.total) if tokens else old
        self.where = dict(zip(tokens, new.tolist(), strict=True))
        assert (self.memory.hot.size, self.memory.hot.ceiling) == (moving.size, moving.ceiling)
        for slab in self.memory.hot.slabs.values():
            tokens, epoch = self.hot[slab.id]
            assert slab.epoch in (epoch, epoch + 1)
            self.hot[slab.id] = (tokens, slab.epoch)

    @precondition(lambda self: self.memory.relocation is not None)
    @rule()
    def abort(self) -> None:
        self.memory.relocation.abort()
        if self.before is not None:
            assert fingerprint(self.memory) == self.before
        self.before = None

    @rule()
    def open_step(self) -> None:
        self.steps.append(self.memory.fence.open())

    @precondition(lambda self: self.steps)
    @rule(index=st.integers(0, 5))
    def close_step(self, index: int) -> None:
        step = self.steps.pop(index % len(self.steps))
        self.memory.fence.close(step)
        oldest = min(self.steps, default=10**9)
        self.dead = [(at, slots) for at, slots in self.dead if at >= oldest]

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.memory.check()
        state = self.memory.space.state
        for token, slot in self.where.items():
            assert all(self.kv.read(np.array([slot]), layer)[0] == token for layer in (0, 1))
        in_slabs = set()
        for slab in self.memory.hot.slabs.values():
            if slab.id in self.hot:
                tokens, epoch = self.hot[slab.id]
                assert [self.where[t] for t in tokens] == list(
                    range(slab.base, slab.base + len(tokens))
                )
                assert slab.epoch == epoch, "a base changed outside a commit"
                in_slabs.update(tokens)
            assert slab.end <= self.memory.hot.ceiling
        for token, slot in self.where.items():
            if token in in_slabs:
                assert state[slot] == SlotState.HOT_SLAB
            else:
                assert state[slot] in (SlotState.COLD_USED, SlotState.DONATED_USED)
        assert not (state[: self.memory.hot.ceiling] >= SlotState.DONATED_FREE).any()
        assert (state[self.memory.hot.size :] >= SlotState.COLD_FREE).all()

    def teardown(self) -> None:
        """Freeing everything restores one bump pointer at 0 and no free range."""
        if not hasattr(self, "memory"):
            return
        if self.memory.relocation is not None:
            self.memory.relocation.abort()
        for step in self.steps:
            self.memory.fence.close(step)
        for slab_id in list(self.hot):
            self.memory.free_hot(slab_id)
            del_tokens = self.hot.pop(slab_id)[0]
            for token in del_tokens:
                del self.where[token]
        if self.where:
            self.memory.free_cold(np.array(list(self.where.values())))
        self.memory.reclaim_idle(100)
        self.memory.check()
        assert (self.memory.hot.bump, self.memory.hot.free_ranges()) == (0, [])
        assert self.memory.space.count(SlotState.HOT_FREE) == self.memory.hot.size
        assert self.memory.space.count(SlotState.COLD_FREE) == self.total - self.memory.hot.size


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
