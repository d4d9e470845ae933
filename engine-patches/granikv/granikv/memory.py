"""One allocator over both pools: allocation with loans under pressure, frees behind the fence.

The owners (radix tree, running requests) see slots and slab ids only.  Structural changes (taking
a loan back, moving the boundary) are relocations, see `granikv.relocate`; at most one runs at a
time, and COLD pressure aborts it rather than fail an allocation that would fit without it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from granikv.cold import ColdPool
from granikv.errors import BadFreeError, BadSizeError, OutOfSlotsError
from granikv.fence import StepFence
from granikv.hot import HotPool, Slab
from granikv.slots import SlotArray, SlotSpace, SlotState

DEFAULT_CHUNK = 4096


class Relocating(Protocol):
    """What a running relocation is told, so that it never copies what nobody owns any more."""

    def on_cold_freed(self, slots: SlotArray) -> None:
        """These slots, checked and about to be freed, may be sources of its moves."""

    def on_slab_cut(self, slab_id: int, length: int) -> None:
        """This slab now has `length` slots; 0 when it is gone."""

    def abort(self) -> None:
        """Restore the exact state from before it began."""


@dataclass(slots=True)
class MemoryCounters:
    """Monotonic counts since start."""

    hot_admitted: int = 0
    hot_failed: int = 0
    hot_failed_slots: int = 0
    cold_failed: int = 0
    lent_chunks: int = 0
    reclaimed_chunks: int = 0
    relocations_aborted: int = 0


class Memory:
    """Slots [0, hot_slots) are HOT, the rest COLD; `chunk` slots are lent at a time."""

    def __init__(self, total: int, hot_slots: int, chunk: int = DEFAULT_CHUNK) -> None:
        if chunk <= 0:
            raise BadSizeError(f"a chunk of {chunk} slots")
        self.space = SlotSpace(total)
        self.hot = HotPool(self.space, hot_slots)
        self.cold = ColdPool(self.space, hot_slots)
        self.fence = StepFence()
        self.chunk = chunk
        self.counters = MemoryCounters()
        self.relocation: Relocating | None = None
        self._limbo = np.zeros(total, np.bool_)
        self._limbo_slabs: dict[int, int] = {}  # id -> length it will have; 0: it goes

    @property
    def lent(self) -> int:
        """Slots of HOT that are lent to COLD, used or not."""
        return self.hot.size - self.hot.ceiling

    def cold_headroom(self) -> int:
        """COLD slots that `alloc_cold` could hand out, loans that HOT can make included."""
        room = 0
        if self.relocation is None:
            room = (self.hot.ceiling - self.hot.bump) // self.chunk * self.chunk
        return self.cold.available + room

    def alloc_cold(self, count: int) -> SlotArray:
        """Token slots; borrows idle HOT chunks, then aborts a relocation, before it fails."""
        if count <= 0:
            raise BadSizeError(f"cannot allocate {count} slots")
        if count > self.cold.available and self.relocation is not None:
            self.counters.relocations_aborted += 1
            self.relocation.abort()
        short = count - self.cold.available
        if short > 0:
            if count > self.cold_headroom():
                self.counters.cold_failed += 1
                raise OutOfSlotsError(f"{count} slots wanted, {self.cold_headroom()} to be had")
            self.lend(-(-short // self.chunk))
        return self.cold.alloc(count)

    def free_cold(self, slots: SlotArray) -> None:
        """Free token slots once no open step can read them."""
        slots = self.cold.checked(slots)
        if bool(self._limbo[slots].any()):
            raise BadFreeError("a slot that is being freed already")
        self._limbo[slots] = True
        self.fence.after(lambda: self._free_cold_now(slots))

    def alloc_hot(self, length: int) -> Slab:
        """A slab; takes idle loans back first.  OutOfSlotsError: the prefix stays COLD."""
        if length <= 0:
            raise BadSizeError(f"a slab needs at least one slot, not {length}")
        while not self.hot.fits(length) and self.reclaim_idle(1):
            pass
        try:
            slab = self.hot.alloc(length)
        except OutOfSlotsError:
            self.counters.hot_failed += 1
            self.counters.hot_failed_slots += length
            raise
        self.counters.hot_admitted += 1
        return slab

    def free_hot(self, slab_id: int) -> None:
        """Free a slab once no open step can read it."""
        self._future_length(slab_id)
        self._limbo_slabs[slab_id] = 0
        self.fence.after(lambda: self._cut_now(slab_id, 0))

    def trim_hot(self, slab_id: int, length: int) -> None:
        """Cut a slab's tail once no open step can read it."""
        now = self._future_length(slab_id)
        if not 0 < length <= now:
            raise BadSizeError(f"slab {slab_id} of {now} slots cannot become {length}")
        self._limbo_slabs[slab_id] = length
        self.fence.after(lambda: self._cut_now(slab_id, length))

    def lend(self, chunks: int) -> int:
        """Lend up to this many idle chunks of HOT's tail to COLD; how many were lent."""
        lent = 0
        while lent < chunks and self.relocation is None:
            low = self.hot.ceiling - self.chunk
            if low < self.hot.bump:
                break
            self.cold.lend(low, self.hot.ceiling)
            self.hot.set_bounds(self.hot.size, low)
            lent += 1
        self.counters.lent_chunks += lent
        return lent

    def reclaim_idle(self, chunks: int) -> int:
        """Take back up to this many lent chunks that hold no token; no copy is needed."""
        taken = 0
        while taken < chunks and self.relocation is None and self.lent:
            low = self.hot.ceiling
            high = min(low + self.chunk, self.hot.size)
            if len(self.space.find(low, high, SlotState.DONATED_USED)):
                break
            self.cold.return_lent(low, high)
            self.hot.set_bounds(self.hot.size, high)
            taken += 1
        self.counters.reclaimed_chunks += taken
        return taken

    def check(self) -> None:
        """Every structural invariant; raises CorruptStateError (tests, soak)."""
        self.space.check()
        self.hot.check()
        self.cold.check()

    def _free_cold_now(self, slots: SlotArray) -> None:
        self._limbo[slots] = False
        if self.relocation is not None:
            self.relocation.on_cold_freed(slots)
        self.cold.free(slots)

    def _future_length(self, slab_id: int) -> int:
        """Length that a slab has when all pending cuts are done; BadFreeError when it is none."""
        slab = self.hot.slabs.get(slab_id)
        length = self._limbo_slabs.get(slab_id, slab.length if slab else 0)
        if not length:
            raise BadFreeError(f"no slab {slab_id}, or it is being freed already")
        return length

    def _cut_now(self, slab_id: int, length: int) -> None:
        if length:
            self.hot.trim(slab_id, length)
        else:
            self.hot.free(slab_id)
        if self._limbo_slabs.get(slab_id) == length:
            del self._limbo_slabs[slab_id]
        if self.relocation is not None:
            self.relocation.on_slab_cut(slab_id, length)
