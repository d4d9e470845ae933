"""The COLD pool: single token slots on array stacks, allocated and freed in batches.

Own slots are taken first.  Slots that HOT has lent come last, highest address first, so that the
chunk next to the slabs, which is the first to be wanted back, stays emptiest.
"""

import numpy as np

from granikv.errors import BadFreeError, BadSizeError, CorruptStateError, OutOfSlotsError
from granikv.slots import SlotArray, SlotSpace, SlotState


class _Stack:
    """A LIFO of slots in one array; `sort` puts the highest address on top."""

    def __init__(self, capacity: int) -> None:
        self._data = np.empty(capacity, np.int64)
        self.top = 0

    def push(self, slots: SlotArray) -> None:
        self._data[self.top : self.top + len(slots)] = slots
        self.top += len(slots)

    def pop(self, count: int) -> SlotArray:
        self.top -= count
        return self._data[self.top : self.top + count].copy()

    def drop(self, low: int, high: int) -> int:
        """Take the slots of [low, high) off, keeping the order of the rest; how many."""
        data = self._data[: self.top]
        keep = data[(data < low) | (data >= high)]
        dropped = self.top - len(keep)
        self._data[: len(keep)] = keep
        self.top = len(keep)
        return dropped

    def sort(self) -> None:
        self._data[: self.top].sort()

    def view(self) -> SlotArray:
        return self._data[: self.top]


class ColdPool:
    """Token slots above `first`; everything there is COLD_FREE at start."""

    def __init__(self, space: SlotSpace, first: int) -> None:
        self._space = space
        self._own = _Stack(space.total)
        self._lent = _Stack(space.total)
        self._lent_sorted = True
        self._frozen: tuple[int, int] | None = None
        # Highest address on top: the strip that HOT would grow into fills last.
        self._own.push(np.arange(first, space.total, dtype=np.int64))

    @property
    def available(self) -> int:
        """Slots that `alloc` can hand out now."""
        return self._own.top + self._lent.top

    def alloc(self, count: int) -> SlotArray:
        """`count` slots in no particular order; OutOfSlotsError when there are not enough."""
        if count <= 0:
            raise BadSizeError(f"cannot allocate {count} slots")
        if count > self.available:
            raise OutOfSlotsError(f"{count} COLD slots wanted, {self.available} free")
        own = self._own.pop(min(count, self._own.top))
        self._space.move_slots(own, SlotState.COLD_FREE, SlotState.COLD_USED)
        if len(own) == count:
            return own
        if not self._lent_sorted:
            self._lent.sort()
            self._lent_sorted = True
        lent = self._lent.pop(count - len(own))
        self._space.move_slots(lent, SlotState.DONATED_FREE, SlotState.DONATED_USED)
        return np.concatenate([own, lent])

    def free(self, slots: SlotArray) -> None:
        """Give slots back; BadFreeError (and no change) unless each is used and named once."""
        slots = self.checked(slots)
        lent = self._space.state[slots] == SlotState.DONATED_USED
        self._release(slots[~lent], self._own, SlotState.COLD_USED, SlotState.COLD_FREE)
        if lent.any():
            self._release(slots[lent], self._lent, SlotState.DONATED_USED, SlotState.DONATED_FREE)
            self._lent_sorted = False

    def checked(self, slots: SlotArray) -> SlotArray:
        """The slots as an array, or BadFreeError when one of them is not COLD in use."""
        slots = np.asarray(slots, np.int64)
        if not len(slots):
            raise BadSizeError("no slots given")
        if slots.min() < 0 or slots.max() >= self._space.total:
            raise BadFreeError("a slot outside the space")
        state = self._space.state[slots]
        if not bool(((state == SlotState.COLD_USED) | (state == SlotState.DONATED_USED)).all()):
            raise BadFreeError("a slot that is not COLD in use: freed twice, or never allocated")
        if self._space.has_duplicates(slots):
            raise BadFreeError("a slot named twice in one call")
        return slots

    def freeze(self, low: int, high: int) -> None:
        """Hand out nothing from [low, high); what is freed there stays there until `thaw`."""
        if self._frozen is not None:
            raise CorruptStateError("a range is frozen already")
        self._frozen = (low, high)
        self._own.drop(low, high)
        self._lent.drop(low, high)

    def thaw(self) -> None:
        """End a freeze: the free slots of the range may be handed out again."""
        low, high = self._take_frozen()
        self._own.push(self._space.find(low, high, SlotState.COLD_FREE))
        self._lent.push(self._space.find(low, high, SlotState.DONATED_FREE))
        self._lent_sorted = False

    def give_up_frozen(self) -> None:
        """End a freeze whose range has left COLD: the caller relabels its slots."""
        self._take_frozen()

    def lend(self, low: int, high: int) -> None:
        """Take [low, high), all HOT_FREE, on loan."""
        self._space.move_range(low, high, SlotState.HOT_FREE, SlotState.DONATED_FREE)
        self._lent.push(np.arange(low, high, dtype=np.int64))
        self._lent_sorted = False

    def return_lent(self, low: int, high: int) -> None:
        """Give [low, high), all of it free, back to HOT."""
        self._space.move_range(low, high, SlotState.DONATED_FREE, SlotState.HOT_FREE)
        self._lent.drop(low, high)

    def own(self, low: int, high: int) -> None:
        """The range [low, high), relabelled COLD by the caller, is ours now: queue what is free."""
        self._lent.drop(low, high)
        self._own.push(self._space.find(low, high, SlotState.COLD_FREE))

    def check(self) -> None:
        """The stacks hold each free slot outside the frozen range once; CorruptStateError else."""
        low, high = self._frozen or (0, 0)
        for stack, state in (
            (self._own, SlotState.COLD_FREE),
            (self._lent, SlotState.DONATED_FREE),
        ):
            free = self._space.find(0, self._space.total, state)
            free = free[(free < low) | (free >= high)]
            if not np.array_equal(np.sort(stack.view()), free):
                raise CorruptStateError(f"the {state.name} stack and the states disagree")

    def _release(self, slots: SlotArray, stack: _Stack, used: SlotState, free: SlotState) -> None:
        self._space.move_slots(slots, used, free)
        if self._frozen is not None:
            low, high = self._frozen
            slots = slots[(slots < low) | (slots >= high)]
        stack.push(slots)

    def _take_frozen(self) -> tuple[int, int]:
        if self._frozen is None:
            raise CorruptStateError("nothing is frozen")
        frozen, self._frozen = self._frozen, None
        return frozen
