"""Running a step plan: one workspace of fixed device buffers, and the ways through a step.

The plan's block is copied into one device buffer at a fixed address, so that a captured graph
stays valid when the plan changes, as long as the launch sizes stay: `run(..., fixed=Fixed())`
launches sizes of its own instead of this plan's counts.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from granikv.errors import BadSizeError
from granikv.external import cudnn_level0, dense_level0
from granikv.kernels import launch
from granikv.kernels.launch import Heads, Layer, Tile
from granikv.shapes import Grain, Path, PlanShape, StepPlan


class Mode(StrEnum):
    """How the kernels of a step are put together."""

    SPLIT = "split"  # level 0, then the ranges and the tails, then the merge
    FUSED = "fused"  # level 0, then closed ranges, then tails with the merge in one
    OVERLAP = "overlap"  # level 0 beside the ranges on a second stream, then the merge

    def grain(self, grain: Grain) -> Grain:
        """The grain to plan with: beside the ranges level 0 takes one program a multiprocessor.

        Two of them fill its registers and shared memory and leave the ranges nothing: measured
        144 us a step on two streams that way, 118 with one (H200, B = 256, Lp = 8K).
        """
        return replace(grain, slots=grain.slots // 2) if self is Mode.OVERLAP else grain


@dataclass(frozen=True, slots=True)
class Fixed:
    """Launch sizes of a captured graph: they stay while the plans change."""

    programs: int = 528  # for the ranges, a KV head
    tile: Tile = launch.PAGED_SMALL
    parts: int = 8  # most partials of a request, as a hint to the merge


class Workspace:
    """Device buffers for plans of one shape; shared by all layers of a model."""

    def __init__(
        self,
        shape: PlanShape,
        heads: Heads,
        *,
        rows: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.shape, self.heads = shape, heads
        offsets = shape.offsets()
        self.block = torch.zeros(offsets["end"][0], dtype=torch.int32, device=device)
        self.arrays = {
            name: self.block[at : at + size].view(dims)
            for name, (at, size, dims) in offsets.items()
            if size
        }
        self.po = torch.empty(rows, heads.kv_heads, heads.dim, dtype=dtype, device=device)
        self.pl = torch.empty(rows, heads.kv_heads, dtype=torch.float32, device=device)
        self.side = torch.cuda.Stream(device) if self.block.is_cuda else None
        self.plan: StepPlan | None = None
        self._staging: list[tuple[torch.Tensor, torch.cuda.Event]] = []
        self._turn = 0

    @property
    def plan_in_force(self) -> StepPlan:
        """The plan that was loaded last; BadSizeError when there is none."""
        if self.plan is None:
            raise BadSizeError("no plan has been loaded")
        return self.plan

    def load(self, plan: StepPlan) -> None:
        """Make this the plan in force; one copy of the block, in stream order."""
        if plan.shape != self.shape or plan.rows > self.po.shape[0]:
            raise BadSizeError(f"a plan of {plan.rows} rows for {self.po.shape[0]}")
        host = torch.from_numpy(plan.block)
        if self.block.is_cuda:
            self._stage(host)
        else:
            self.block.copy_(host)
        self.plan = plan

    def _stage(self, host: torch.Tensor) -> None:
        """Copy through one of four pinned buffers; waits only when all are still on their way."""
        if not self._staging:
            self._staging = [
                (torch.empty_like(host).pin_memory(), torch.cuda.Event()) for _ in range(4)
            ]
        pinned, done = self._staging[self._turn % len(self._staging)]
        self._turn += 1
        done.synchronize()
        pinned.copy_(host)
        self.block.copy_(pinned, non_blocking=True)
        done.record()

    def run(
        self,
        q: torch.Tensor,
        layer: Layer,
        table: torch.Tensor,
        lengths: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        *,
        mode: Mode = Mode.FUSED,
        page: int = 1,
        fixed: Fixed | None = None,
        rows: torch.Tensor | None = None,
        skip_prefix: bool = False,
        pages: bool = False,
        suffix: Tile = launch.SUFFIX,
    ) -> None:
        """One layer's attention: q [B, Hq, D] -> out [B, Hq, D], lse [B, Hq] to base 2.

        `table` [B, >= length] holds the slot of every position, HOT ones included; with `rows`
        request r's row is rows[r].  `fixed` launches what a graph captures, whatever the plan.
        `skip_prefix` leaves level 0 out, for timing: its partials are those of an earlier call.
        `pages` reads the prefixes through the table too, as a cascade over pages does.
        """
        plan = self._checked(q)
        a, heads = self.arrays, self.heads
        parts = fixed.parts if fixed else plan.max_parts
        for external in () if skip_prefix else plan.external:
            run = cudnn_level0 if external.cls.path is Path.CUDNN else dense_level0
            run(external, q, layer, a["order"], self.po, self.pl, heads)
        prefix = (plan.items or fixed) and not skip_prefix
        if mode is Mode.OVERLAP and prefix:
            self._overlap(q, layer, table, lengths, page=page, fixed=fixed, rows=rows)
            launch.merge(
                self.po, self.pl, a["parts"], a["part_count"], out, lse, heads, parts
            )  # fmt: skip
            return
        if prefix:
            self.level0(q, layer, pages=launch.Pages(table, rows, page) if pages else None)
        tails = mode is not Mode.FUSED
        count = plan.ranges if tails else plan.closed_ranges
        if count or fixed:
            self.ranges(
                q, layer, table, lengths, tails=tails, page=page, fixed=fixed, rows=rows
            )  # fmt: skip
        if tails:
            launch.merge(
                self.po, self.pl, a["parts"], a["part_count"], out, lse, heads, parts
            )  # fmt: skip
        else:
            launch.suffix_merge(
                q, layer, table, lengths, a["tails"], self.po, self.pl, a["parts"],
                a["part_count"], out, lse, heads, page, suffix, rows,
            )  # fmt: skip

    def level0(
        self,
        q: torch.Tensor,
        layer: Layer,
        tile: Tile = launch.LEVEL0,
        pages: launch.Pages | None = None,
    ) -> None:
        """The grouped level 0 of the plan in force, alone."""
        a = self.arrays
        launch.level0(
            q, layer, a["order"], a["workers"], a["items"], self.po, self.pl, self.heads,
            self._checked(q).workers, tile, pages,
        )  # fmt: skip

    def ranges(
        self,
        q: torch.Tensor,
        layer: Layer,
        table: torch.Tensor,
        lengths: torch.Tensor,
        *,
        tails: bool,
        page: int = 1,
        fixed: Fixed | None = None,
        rows: torch.Tensor | None = None,
        tile: Tile | None = None,
    ) -> None:
        """The closed ranges of the plan in force, and the open tails if asked for, alone."""
        plan, a = self._checked(q), self.arrays
        count = plan.ranges if tails else plan.closed_ranges
        usual = launch.PAGED if plan.max_range > 512 else launch.PAGED_SMALL
        launch.paged(
            q, layer, table, lengths, a["ranges"], a["counts"][0 if tails else 1 :],
            fixed.programs if fixed else count, self.po, self.pl, self.heads, page,
            tile or (fixed.tile if fixed else usual), rows, loop=fixed is not None,
        )  # fmt: skip

    def _overlap(
        self,
        q: torch.Tensor,
        layer: Layer,
        table: torch.Tensor,
        lengths: torch.Tensor,
        *,
        page: int,
        fixed: Fixed | None,
        rows: torch.Tensor | None,
    ) -> None:
        """Level 0 first, so that each multiprocessor takes one of its programs, then the ranges."""
        if self.side is None:
            self.level0(q, layer)
            self.ranges(
                q, layer, table, lengths, tails=True, page=page, fixed=fixed, rows=rows
            )  # fmt: skip
            return
        now = torch.cuda.current_stream(self.side.device)
        self.side.wait_stream(now)
        self.level0(q, layer)
        with torch.cuda.stream(self.side):
            self.ranges(
                q,
                layer,
                table,
                lengths,
                tails=True,
                page=page,
                fixed=fixed,
                rows=rows,
                tile=launch.BESIDE,
            )
        now.wait_stream(self.side)

    def _checked(self, q: torch.Tensor) -> StepPlan:
        heads = self.heads
        plan = self.plan_in_force
        if q.shape[0] != plan.batch:
            raise BadSizeError(f"a plan for a batch of {plan.batch}, not {q.shape[0]}")
        if q.shape[1:] != (heads.kv_heads * heads.group, heads.dim) or q.stride(2) != 1:
            raise BadSizeError(f"q of shape {tuple(q.shape)} for {heads}")
        return plan
