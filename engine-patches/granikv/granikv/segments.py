"""Where a tree node's KV is: a range of a slab, or one slot a token."""

from dataclasses import dataclass

import numpy as np

from granikv.slots import SlotArray


@dataclass(frozen=True, slots=True)
class HotSegment:
    """Tokens [offset, offset + length) of a slab."""

    slab: int
    offset: int
    length: int

    def cut(self, at: int) -> "tuple[HotSegment, HotSegment]":
        """The parts before and behind token `at`."""
        return (
            HotSegment(self.slab, self.offset, at),
            HotSegment(self.slab, self.offset + at, self.length - at),
        )


@dataclass(frozen=True, slots=True)
class ColdSegment:
    """One slot a token."""

    slots: SlotArray

    def cut(self, at: int) -> "tuple[ColdSegment, ColdSegment]":
        """The parts before and behind token `at`."""
        return ColdSegment(self.slots[:at]), ColdSegment(self.slots[at:])


Segment = HotSegment | ColdSegment


def join(upper: Segment, lower: Segment) -> Segment | None:
    """One segment for two that follow each other, or None."""
    if isinstance(upper, ColdSegment) and isinstance(lower, ColdSegment):
        return ColdSegment(np.concatenate([upper.slots, lower.slots]))
    if (
        isinstance(upper, HotSegment)
        and isinstance(lower, HotSegment)
        and (upper.slab, upper.offset + upper.length) == (lower.slab, lower.offset)
    ):
        return HotSegment(upper.slab, upper.offset, upper.length + lower.length)
    return None
