"""The HOT pool: contiguous slabs in [0, size), one per shared prefix.

A bump pointer and a sorted list of free ranges below it; first fit, full merge, and a range that
touches the pointer is folded back into it.  The tail above `ceiling` may be lent to COLD.  A slab
keeps its id for life; its base changes only through `rebase`, which raises its epoch.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace

from granikv.errors import BadFreeError, BadSizeError, CorruptStateError, OutOfSlotsError
from granikv.slots import SlotSpace, SlotState


@dataclass(frozen=True, slots=True)
class Slab:
    """One contiguous run of slots; `epoch` counts how often it has moved."""

    id: int
    base: int
    length: int
    epoch: int = 0

    @property
    def end(self) -> int:
        """First slot behind the slab."""
        return self.base + self.length


class HotPool:
    """Slabs over slots [0, size) of a space whose slots there are all COLD_FREE at start."""

    def __init__(self, space: SlotSpace, size: int) -> None:
        if not 0 <= size <= space.total:
            raise BadSizeError(f"HOT of {size} slots in a space of {space.total}")
        self._space = space
        self.size = size
        self.ceiling = size  # slots [ceiling, size) are lent to COLD
        self.bump = 0
        self.slabs: dict[int, Slab] = {}
        self._free: list[tuple[int, int]] = []  # (start, length), sorted, never adjacent
        self._reserved: dict[int, int] = {}  # base -> length: the targets of moves under way
        self._frozen: int | None = None
        self._next_id = 0
        if size:
            space.move_range(0, size, SlotState.COLD_FREE, SlotState.HOT_FREE)

    def alloc(self, length: int) -> Slab:
        """A new slab of exactly `length` slots; OutOfSlotsError when no free run holds it."""
        base = self._take(length)
        slab = Slab(self._next_id, base, length)
        self._next_id += 1
        self.slabs[slab.id] = slab
        return slab

    def free(self, slab_id: int) -> None:
        """Give a slab back."""
        slab = self._known(slab_id)
        del self.slabs[slab_id]
        self._give(slab.base, slab.length)

    def trim(self, slab_id: int, length: int) -> Slab:
        """Cut a slab's tail so that `length` slots remain (a tree node behind it was evicted)."""
        slab = self._known(slab_id)
        if not 0 < length <= slab.length:
            raise BadSizeError(f"slab {slab_id} of {slab.length} slots cannot become {length}")
        if length < slab.length:
            self._give(slab.base + length, slab.length - length)
            self.slabs[slab_id] = replace(slab, length=length)
        return self.slabs[slab_id]

    def reserve(self, length: int) -> int:
        """Room for a slab that is about to move; taken back by `unreserve` or `rebase`."""
        base = self._take(length)
        self._reserved[base] = length
        return base

    def unreserve(self, base: int, keep: int = 0) -> None:
        """Give back a reservation, or all of it behind its first `keep` slots."""
        length = self._reserved.pop(base, 0)
        if not 0 <= keep < length:
            raise BadFreeError(f"no reservation at {base} that is longer than {keep}")
        if keep:
            self._reserved[base] = keep
        self._give(base + keep, length - keep)

    def rebase(self, slab_id: int, base: int) -> Slab:
        """Flip a slab onto a reservation of its length: the one place where a base changes."""
        slab = self._known(slab_id)
        if self._reserved.pop(base, None) != slab.length:
            raise CorruptStateError(f"slab {slab_id} has no reservation at {base}")
        moved = replace(slab, base=base, epoch=slab.epoch + 1)
        self.slabs[slab_id] = moved
        self._give(slab.base, slab.length)
        return moved

    def freeze(self, at: int) -> None:
        """Allocate nothing at or above `at` until `thaw`."""
        self._frozen = at

    def thaw(self) -> None:
        """End a freeze."""
        self._frozen = None

    def set_bounds(self, size: int, ceiling: int) -> None:
        """Move the boundary and the ceiling; nothing above the new ceiling may be in use."""
        if not 0 <= self.bump <= ceiling <= size:
            raise CorruptStateError(f"bump {self.bump}, ceiling {ceiling}, size {size}")
        self.size, self.ceiling = size, ceiling

    def fits(self, length: int) -> bool:
        """Whether `alloc(length)` would succeed now."""
        return length > 0 and self.largest_free() >= length

    def largest_free(self) -> int:
        """Longest free run that may be allocated, bump room included."""
        limit = self._limit()
        runs = (min(s + n, limit) - s for s, n in self._free)
        return max(limit - self.bump, *runs, 0) if self._free else max(limit - self.bump, 0)

    def free_slots(self) -> int:
        """Free slots below the ceiling, whether contiguous or not."""
        return self.ceiling - self.bump + sum(n for _, n in self._free)

    def hole_slots(self) -> int:
        """Free slots between slabs: what can be neither lent nor given away without moving one."""
        return sum(n for _, n in self._free)

    def fragmentation(self) -> float:
        """1 - largest free run / free slots; 0 when nothing is free."""
        free = self.free_slots()
        return 1.0 - self.largest_free() / free if free else 0.0

    def above(self, boundary: int) -> list[Slab]:
        """Slabs that reach above a boundary, longest first: the order in which first fit packs."""
        found = [s for s in self.slabs.values() if s.end > boundary]
        return sorted(found, key=lambda s: (-s.length, s.base))

    def free_ranges(self) -> list[tuple[int, int]]:
        """The free ranges below the bump pointer as (start, length), ascending."""
        return list(self._free)

    def reservations(self) -> dict[int, int]:
        """Base and length of each move target."""
        return dict(self._reserved)

    def check(self) -> None:
        """Verify invariants 2 and 3 of the design; raises CorruptStateError."""
        used = [(s.base, s.length) for s in self.slabs.values()] + list(self._reserved.items())
        runs = sorted(used + self._free)
        at = 0
        for start, length in runs:
            if start != at or length <= 0:
                raise CorruptStateError(f"hole or overlap at {at}: next run starts at {start}")
            at = start + length
        if at != self.bump or self.bump > self.size:
            raise CorruptStateError(f"runs end at {at}, bump is {self.bump}")
        ends = [s + n for s, n in self._free]
        starts = {s for s, _ in self._free}
        if self.bump in ends or any(end in starts for end in ends):
            raise CorruptStateError(f"unmerged free ranges {self._free}, bump {self.bump}")

    def _limit(self) -> int:
        return self.ceiling if self._frozen is None else min(self.ceiling, self._frozen)

    def _known(self, slab_id: int) -> Slab:
        slab = self.slabs.get(slab_id)
        if slab is None:
            raise BadFreeError(f"no slab {slab_id}")
        return slab

    def _take(self, length: int) -> int:
        if length <= 0:
            raise BadSizeError(f"a slab needs at least one slot, not {length}")
        limit = self._limit()
        for i, (start, room) in enumerate(self._free):
            if min(start + room, limit) - start >= length:
                rest = room - length
                self._free[i : i + 1] = [(start + length, rest)] if rest else []
                break
        else:
            start = self.bump
            if start + length > limit:
                raise OutOfSlotsError(f"no free HOT run of {length} slots below {limit}")
            self.bump += length
        self._space.move_range(start, start + length, SlotState.HOT_FREE, SlotState.HOT_SLAB)
        return start

    def _give(self, start: int, length: int) -> None:
        self._space.move_range(start, start + length, SlotState.HOT_SLAB, SlotState.HOT_FREE)
        i = bisect_left(self._free, (start, 0))
        if i < len(self._free) and self._free[i][0] == start + length:
            length += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == start:
            before = self._free.pop(i - 1)
            start, length = before[0], before[1] + length
            i -= 1
        if start + length == self.bump:
            self.bump = start
        else:
            self._free.insert(i, (start, length))
