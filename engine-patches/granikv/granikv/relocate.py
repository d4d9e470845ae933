"""Relocation: reserve, copy, flip.  The one mechanism behind reclaim and both resize directions.

`begin_*` freezes the range that changes hands and reserves a place for everything that lives
there, or changes nothing and raises.  Copies then go step by step under a byte cap; the sources
stay the truth, because written KV never changes, and page tables still point at them.  `commit`
flips everything between two steps and returns the slot map for page tables and tree.  Before
that, `abort` gives the reservations back, and the state is exactly what it was.

Contract: each used slot of the range has had its KV written, in stream order, before `begin_*`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from granikv.errors import BadSizeError, OutOfSlotsError, RelocationError, StepOpenError
from granikv.memory import Memory
from granikv.slots import TO_COLD, TO_DONATED, SlotArray, SlotState

_EMPTY = np.empty(0, np.int64)


class Kind(StrEnum):
    """Why slots move."""

    RECLAIM = "reclaim"
    GROW = "grow"
    SHRINK = "shrink"


class Moves(NamedTuple):
    """KV of slot source[i] belongs, or now lives, at slot target[i]."""

    source: SlotArray
    target: SlotArray

    @property
    def size(self) -> int:
        """How many slots move."""
        return len(self.source)

    def table(self, total: int) -> SlotArray:
        """Where each of `total` slots is now: what page tables and tree follow after a commit."""
        table = np.arange(total, dtype=np.int64)
        table[self.source] = self.target
        return table

    def apply(self, slots: SlotArray, total: int) -> SlotArray:
        """`slots` with every moved one replaced."""
        return self.table(total)[slots]


@dataclass(slots=True)
class _SlabMove:
    """One slab on its way from `source` to `target`, as long as it still is."""

    offset: int  # of its first slot in the copy queue
    target: int
    length: int


@dataclass(slots=True)
class Relocation:
    """One running relocation.  Obtained from `begin_reclaim`, `begin_grow`, `begin_shrink`."""

    memory: Memory
    kind: Kind
    size: int  # HOT size after commit
    ceiling: int  # HOT ceiling after commit
    low: int  # the frozen range [low, high)
    high: int
    slabs: dict[int, _SlabMove] = field(default_factory=dict)
    copied: int = 0
    total: int = 0
    done: bool = False
    _live: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    _queue: Moves = field(default_factory=lambda: Moves(_EMPTY, _EMPTY))

    def next_copies(self, max_slots: int) -> Moves:
        """The next copies, at most `max_slots`; the caller has enqueued them when it asks again."""
        if max_slots <= 0:
            raise BadSizeError(f"a cap of {max_slots} slots")
        part = slice(self.copied, min(self.copied + max_slots, self._queue.size))
        self.copied = part.stop
        live = self._live[part]
        return Moves(self._queue.source[part][live], self._queue.target[part][live])

    @property
    def ready(self) -> bool:
        """Whether every copy has been handed out, so that `commit` may follow."""
        return self.copied >= self._queue.size

    @property
    def reserved_cold(self) -> int:
        """COLD slots that are in use as targets only; nobody owns them yet."""
        return 0 if self.kind is Kind.SHRINK else int(self._live.sum())

    def commit(self) -> Moves:
        """Flip: from here on the targets are the truth and the range has changed hands."""
        if self.done or not self.ready:
            raise RelocationError(f"{self.kind}: finished already, or copies are outstanding")
        if not self.memory.fence.idle:
            raise StepOpenError(f"{self.kind}: a planned step still reads the old slots")
        moves = Moves(self._queue.source[self._live], self._queue.target[self._live])
        for slab_id, move in self.slabs.items():
            self.memory.hot.rebase(slab_id, move.target)
        self._hand_over(moves.source)
        self._finish()
        return moves

    def abort(self) -> None:
        """Give every reservation back; the state is what it was before `begin_*`."""
        if self.done:
            raise RelocationError(f"{self.kind}: finished already")
        memory = self.memory
        targets = self._queue.target[self._live]
        if self.kind is Kind.SHRINK:
            for move in self.slabs.values():
                memory.hot.unreserve(move.target)
            memory.hot.thaw()
        else:
            if len(targets):
                memory.cold.free(targets)
            memory.cold.thaw()
        self._finish()

    def on_cold_freed(self, slots: SlotArray) -> None:
        """A source is freed by its owner: drop its move and give the target back."""
        if self.kind is Kind.SHRINK:
            return
        at = np.searchsorted(self._queue.source, slots)  # sources of COLD moves ascend
        inside = at < self._queue.size
        at, slots = at[inside], slots[inside]
        gone = at[self._queue.source[at] == slots]
        if len(gone):
            self._live[gone] = False
            self.memory.cold.free(self._queue.target[gone])

    def on_slab_cut(self, slab_id: int, length: int) -> None:
        """A moving slab got shorter, or went: give the room behind its new end back."""
        move = self.slabs.get(slab_id)
        if move is None or length >= move.length:
            return
        self.memory.hot.unreserve(move.target, keep=length)
        self._live[move.offset + length : move.offset + move.length] = False
        move.length = length
        if not length:
            del self.slabs[slab_id]

    def _hand_over(self, sources: SlotArray) -> None:
        space, hot, cold = self.memory.space, self.memory.hot, self.memory.cold
        if self.kind is Kind.SHRINK:
            hot.thaw()
            old_ceiling = hot.ceiling
            hot.set_bounds(self.size, min(self.ceiling, old_ceiling))
            if old_ceiling > self.size:
                space.move_range(self.size, old_ceiling, SlotState.HOT_FREE, SlotState.COLD_FREE)
            lent_from = max(old_ceiling, self.size)
            space.relabel(lent_from, self.high, TO_COLD)
            cold.own(self.size, self.high)
            return
        lent = sources[sources < hot.size]
        own = sources[sources >= hot.size]
        space.move_slots(lent, SlotState.DONATED_USED, SlotState.DONATED_FREE)
        space.move_slots(own, SlotState.COLD_USED, SlotState.COLD_FREE)
        cold.give_up_frozen()
        space.relabel(max(self.low, hot.size), max(self.high, hot.size), TO_DONATED)
        space.move_range(self.low, self.high, SlotState.DONATED_FREE, SlotState.HOT_FREE)
        hot.set_bounds(self.size, self.ceiling)

    def _finish(self) -> None:
        self.done = True
        self.memory.relocation = None


def begin_reclaim(memory: Memory, chunks: int) -> Relocation:
    """Take this many lent chunks back, migrating the tokens that are in them."""
    if chunks <= 0:
        raise BadSizeError(f"cannot reclaim {chunks} chunks")
    low = memory.hot.ceiling
    high = min(low + chunks * memory.chunk, memory.hot.size)
    if low == high:
        raise RelocationError("nothing is lent")
    return _begin_cold(memory, Relocation(memory, Kind.RECLAIM, memory.hot.size, high, low, high))


def begin_grow(memory: Memory, size: int) -> Relocation:
    """Raise HOT to `size` slots; takes everything that it lent back on the way."""
    if not memory.hot.size < size <= memory.space.total:
        raise BadSizeError(f"HOT cannot grow from {memory.hot.size} to {size} slots")
    low = memory.hot.ceiling
    return _begin_cold(memory, Relocation(memory, Kind.GROW, size, size, low, size))


def begin_shrink(memory: Memory, size: int) -> Relocation:
    """Lower HOT to `size` slots; slabs above move down by first fit, longest first."""
    hot = memory.hot
    if not 0 <= size < hot.size:
        raise BadSizeError(f"HOT cannot shrink from {hot.size} to {size} slots")
    _require_quiet(memory)
    moving = Relocation(memory, Kind.SHRINK, size, min(hot.ceiling, size), size, hot.size)
    hot.freeze(size)
    copies = []
    try:
        for slab in hot.above(size):
            target = hot.reserve(slab.length)
            moving.slabs[slab.id] = _SlabMove(moving.total, target, slab.length)
            moving.total += slab.length
            span = np.arange(slab.length, dtype=np.int64)
            copies.append(Moves(slab.base + span, target + span))
    except OutOfSlotsError as error:
        for move in moving.slabs.values():
            hot.unreserve(move.target)
        hot.thaw()
        raise RelocationError(f"HOT of {size} slots cannot hold the live slabs") from error
    if copies:
        moving._queue = Moves(
            np.concatenate([m.source for m in copies]), np.concatenate([m.target for m in copies])
        )
    moving._live = np.ones(moving.total, np.bool_)
    memory.relocation = moving
    return moving


def _begin_cold(memory: Memory, moving: Relocation) -> Relocation:
    _require_quiet(memory)
    memory.cold.freeze(moving.low, moving.high)
    used = memory.space.find(moving.low, moving.high, SlotState.DONATED_USED, SlotState.COLD_USED)
    try:
        target = memory.cold.alloc(len(used)) if len(used) else _EMPTY
    except OutOfSlotsError as error:
        memory.cold.thaw()
        raise RelocationError(f"COLD has no room for {len(used)} migrating tokens") from error
    moving._queue = Moves(used, target)
    moving._live = np.ones(len(used), np.bool_)
    moving.total = len(used)
    memory.relocation = moving
    return moving


def _require_quiet(memory: Memory) -> None:
    if memory.relocation is not None:
        raise RelocationError("another relocation is under way")
    if not memory.fence.idle:
        raise StepOpenError("a planned step is still open")
