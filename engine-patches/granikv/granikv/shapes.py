"""What a step plan is made of: paths, requests, classes, and the block of int32 with its layout."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from math import prod

import numpy as np
import numpy.typing as npt

from granikv.errors import BadSizeError

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


class Path(StrEnum):
    """How one class's prefix is computed."""

    PAGED = "paged"  # as part of each request's own range
    CASCADE = "cascade"  # grouped Triton level 0
    CUDNN = "cudnn"  # one library call a class
    DENSE = "dense"  # two matrix products and a softmax


Span = tuple[int, int, int]
"""A HOT range on a request's path: (position in the request, slab base, length)."""


@dataclass(frozen=True, slots=True)
class Running:
    """One request of the step: its HOT ranges in path order, and its present length."""

    spans: tuple[Span, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Grain:
    """What a plan's cuts depend on, of the model's shape and of the GPU."""

    kv_heads: int
    group: int
    slots: int = 264  # level-0 programs that run at once: two on each of 132 multiprocessors
    rows: int = 64  # level-0 tile
    keys: int = 64
    range_programs: int = 528  # table programs worth having at once
    min_range: int = 64  # shortest piece; longer than any tail block of keys
    max_range: int = 2048
    min_blocks: int = 4  # fewest key blocks that are worth a piece of their own

    def __post_init__(self) -> None:
        if not 1 <= self.group <= 8 or self.kv_heads < 1:
            raise BadSizeError(f"{self.kv_heads} KV heads with groups of {self.group}")

    @property
    def workers(self) -> int:
        """Level-0 workers a KV head."""
        return max(1, self.slots // self.kv_heads)


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Capacities of the block."""

    batch: int
    workers: int
    items: int = 4096
    ranges: int = 4096
    parts: int = 160

    @cache  # noqa: B019  one entry a shape, and there are a handful of shapes
    def offsets(self) -> dict[str, tuple[int, int, tuple[int, ...]]]:
        """First element, size and shape of each array in the block; 32-byte aligned."""
        arrays: dict[str, tuple[int, ...]] = {
            "items": (self.items, 8),  # row0, row1, slab base, n0, n1, output row, position, -
            "ranges": (self.ranges, 4),  # request, n0, n1 (-1: its length), output row
            "parts": (self.batch, self.parts),  # output rows of a request's partials
            "workers": (self.workers + 1,),
            "order": (self.batch,),  # position -> request
            "tails": (self.batch,),  # where the open tail begins
            "part_count": (self.batch,),  # partials before the tail's
            "counts": (8,),  # ranges with the tails, ranges without, level-0 items, rows
        }
        found, at = {}, 0
        for name, shape in arrays.items():
            size = prod(shape)
            found[name] = (at, size, shape)
            at += -(-size // 8) * 8
        found["end"] = (at, 0, ())
        return found


@dataclass(frozen=True, slots=True)
class Class:
    """Requests [first, last) of the plan's order share slab slots [base, base + length)."""

    first: int
    last: int
    base: int
    length: int
    path: Path = Path.CASCADE
    position: int = 0  # of the range in each of these requests

    @property
    def members(self) -> int:
        """How many requests share it."""
        return self.last - self.first


@dataclass(slots=True)
class External:
    """A class whose partials another library computes, and the rows that wait for them."""

    cls: Class
    out_row: int
    splits: int


@dataclass(slots=True)
class StepPlan:
    """One step's plan.  `block` is what goes to the device."""

    shape: PlanShape
    block: Int32
    classes: list[Class]
    external: list[External] = field(default_factory=list)
    items: int = 0
    workers: int = 0
    ranges: int = 0
    closed_ranges: int = 0
    rows: int = 0
    batch: int = 0
    max_parts: int = 0  # of one request, the tail's included
    max_range: int = 0  # positions in the longest range, tails as they are now

    def view(self, name: str) -> Int32:
        """One array of the block."""
        at, size, shape = self.shape.offsets()[name]
        return self.block[at : at + size].reshape(shape)
