"""The slot space: N token slots, each in exactly one state.

HOT occupies the low addresses, COLD the high ones; the boundary between them is the HOT
fraction.  The state array is the authority that the pools check against, so a double or foreign
free is found here and not in a wrong token much later.  Pure numpy; no torch.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from granikv.errors import BadSizeError, CorruptStateError

SlotArray = npt.NDArray[np.int64]


class SlotState(IntEnum):
    """State of one slot.  DONATED slots lie inside HOT and are lent to COLD."""

    HOT_FREE = 0
    HOT_SLAB = 1
    DONATED_FREE = 2
    DONATED_USED = 3
    COLD_FREE = 4
    COLD_USED = 5


# What each COLD state becomes when its range joins HOT as a loan, and back.
TO_DONATED = {
    SlotState.COLD_FREE: SlotState.DONATED_FREE,
    SlotState.COLD_USED: SlotState.DONATED_USED,
}
TO_COLD = {v: k for k, v in TO_DONATED.items()}


class SlotSpace:
    """N slots and the number of them in each state."""

    def __init__(self, total: int) -> None:
        if total <= 0:
            raise BadSizeError(f"a slot space needs at least one slot, not {total}")
        self.total = total
        self.state: npt.NDArray[np.uint8] = np.full(total, SlotState.COLD_FREE, np.uint8)
        self._counts = [0] * len(SlotState)
        self._counts[SlotState.COLD_FREE] = total
        self._scratch = np.zeros(total, np.int64)

    def count(self, state: SlotState) -> int:
        """Number of slots in this state."""
        return self._counts[state]

    def move_range(self, low: int, high: int, old: SlotState, new: SlotState) -> None:
        """Turn slots [low, high) from `old` into `new`; all of them must be `old`."""
        part = self.state[low:high]
        if low < 0 or high > self.total or not bool((part == old).all()):
            raise CorruptStateError(f"slots [{low}, {high}) are not all {old.name}")
        part[:] = new
        self._counts[old] -= high - low
        self._counts[new] += high - low

    def move_slots(self, slots: SlotArray, old: SlotState, new: SlotState) -> None:
        """Turn these (distinct) slots from `old` into `new`; all of them must be `old`."""
        if not bool((self.state[slots] == old).all()):
            raise CorruptStateError(f"{len(slots)} slots are not all {old.name}")
        self.state[slots] = new
        self._counts[old] -= len(slots)
        self._counts[new] += len(slots)

    def relabel(self, low: int, high: int, table: dict[SlotState, SlotState]) -> None:
        """Rename the states of [low, high) by `table`; a state that is not in it is a bug."""
        part = self.state[low:high]
        masks = [part == old for old in table]
        moved = [int(mask.sum()) for mask in masks]
        if sum(moved) != len(part):
            raise CorruptStateError(f"slots [{low}, {high}) hold a state outside {set(table)}")
        for (old, new), mask, count in zip(table.items(), masks, moved, strict=True):
            part[mask] = new
            self._counts[old] -= count
            self._counts[new] += count

    def find(self, low: int, high: int, *states: SlotState) -> SlotArray:
        """Slots of [low, high) in one of these states, ascending."""
        part = self.state[low:high]
        mask = np.zeros(len(part), np.bool_)
        for state in states:  # ten times as fast as np.isin, in the middle of serving
            mask |= part == state
        return np.flatnonzero(mask).astype(np.int64) + low

    def has_duplicates(self, slots: SlotArray) -> bool:
        """Whether a slot occurs twice.  O(n), no sort: the last writer of a mark wins."""
        order = np.arange(len(slots))
        self._scratch[slots] = order
        return bool((self._scratch[slots] != order).any())

    def check(self) -> None:
        """Recount everything; raises CorruptStateError when a count is wrong (tests, soak)."""
        real = np.bincount(self.state, minlength=len(SlotState)).tolist()
        if real != self._counts or sum(real) != self.total:
            raise CorruptStateError(f"counts {self._counts} but the states say {real}")
