"""Decode steps as calibration and benchmarks time them: classes of given lengths, one pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from granikv import reference
from granikv.backends import Mode, Workspace
from granikv.kernels.launch import LEVEL0, SUFFIX, Heads, Layer, Pages, Tile
from granikv.plan import make_plan
from granikv.shapes import Class, Grain, Path, PlanShape, Running, StepPlan

SHAPES = 4  # rotated slabs and tables: 4 x 33.6 MB at Lp = 8K is more than the L2 holds

Call = Callable[[], None]


class Pool:
    """One layer's K and V, slabs from the front, scattered slots from the back."""

    def __init__(self, slots: int, kv_heads: int = 8, dim: int = 128) -> None:
        torch.manual_seed(1)
        shape = (slots, kv_heads, dim)
        self.k, self.v = (
            torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_() for _ in range(2)
        )
        self.layer = Layer.of(self.k, self.v, tma=True)
        self.pointers = Layer.of(self.k, self.v, tma=False)
        self.slots, self.kv_heads, self.dim = slots, kv_heads, dim
        self.scattered = torch.randperm(slots, device="cuda").int()
        self.paged16 = self._spread(16)

    def paged(self, page: int) -> torch.Tensor:
        """Slots in an order in which only pages of `page` slots are contiguous and aligned."""
        known = {1: self.scattered, 16: self.paged16}
        return known[page] if page in known else self._spread(page)

    def _spread(self, page: int) -> torch.Tensor:
        pages = torch.randperm(self.slots // page, device="cuda").int()
        inside = torch.arange(page, device="cuda").int()
        return (pages[:, None] * page + inside).reshape(-1)


@dataclass
class Case:
    """`members[i]` requests share a prefix of `lengths[i]`; all have `suffix` tokens of their own.

    `storage`: "hot" slabs, "cold" the same shared tokens in scattered slots, "cold16" in scattered
    pages of 16, "unique" a copy for each request.
    """

    pool: Pool
    lengths: Sequence[int]
    members: Sequence[int]
    suffix: int = 256
    group: int = 4
    storage: str = "hot"
    path: Path | Callable[[Class], Path] = Path.CASCADE
    splits: int = 1
    mode: Mode = Mode.FUSED
    grain: Grain | None = None
    rotations: int = SHAPES
    page: int = 1  # of COLD: the slot table holds pages; lengths are then multiples of it

    def __post_init__(self) -> None:
        pool, heads = self.pool, self.pool.kv_heads
        self.batch = sum(self.members)
        self.heads = Heads(heads, self.group, pool.dim, pool.dim**-0.5)
        grain = self.grain or Grain(heads, self.group)
        self.planned = self.mode.grain(grain)
        self.lengths_t = torch.tensor(
            [n + self.suffix for n, m in zip(self.lengths, self.members, strict=True)
             for _ in range(m)], device="cuda", dtype=torch.int32,
        )  # fmt: skip
        shape = (self.batch, heads * self.group, pool.dim)
        self.out = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
        self.lse = torch.empty(shape[:2], device="cuda")
        self.shape = PlanShape(self.batch, grain.workers, items=8192, ranges=8192)
        made = [self._rotation(i) for i in range(self.rotations)]
        self.q = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in made]
        self.spaces = [space for space, _ in made]
        self.tables = [table for _, table in made]

    @property
    def plan(self) -> StepPlan:
        """The first rotation's plan."""
        return self.spaces[0].plan_in_force

    @property
    def flops(self) -> float:
        """Useful arithmetic of the prefixes."""
        rows = sum(n * m for n, m in zip(self.lengths, self.members, strict=True))
        return 4.0 * rows * self.pool.kv_heads * self.group * self.pool.dim

    def calls(self, what: Callable[[Workspace, int], None]) -> list[Call]:
        """One call a rotation of `what(workspace, rotation)`."""
        return [lambda i=i, s=s: what(s, i) for i, s in enumerate(self.spaces)]  # type: ignore[misc]

    def step(self, *, tma: bool = True) -> list[Call]:
        """The whole attention step, in this case's mode."""
        layer = self.pool.layer if tma else self.pool.pointers

        def run(space: Workspace, i: int) -> None:
            space.run(
                self.q[i], layer, self.tables[i], self.lengths_t, self.out, self.lse,
                mode=self.mode, page=self.page,
            )  # fmt: skip

        return self.calls(run)

    def tails(self, tile: Tile = SUFFIX) -> list[Call]:
        """The tails with the merge alone (FUSED), or all ranges and the merge (other modes)."""

        def run(space: Workspace, i: int) -> None:
            space.run(
                self.q[i], self.pool.layer, self.tables[i], self.lengths_t, self.out, self.lse,
                mode=self.mode, page=self.page, skip_prefix=True, suffix=tile,
            )  # fmt: skip

        return self.calls(run)

    def error(self, samples: int = 6) -> float:
        """Relative error of a whole step against the f32 reference, on a sample of requests."""
        self.out.fill_(float("nan"))
        self.step()[0]()
        rows = torch.arange(0, self.batch, max(1, self.batch // samples), device="cuda")
        want, _ = reference.step(
            self.q[0][rows], self.pool.k, self.pool.v, self.tables[0][rows], self.lengths_t[rows],
            self.heads.scale,
        )  # fmt: skip
        return reference.relative_error(self.out[rows], want)

    def level0(self, *, tma: bool = True, page: int = 0, tile: Tile = LEVEL0) -> list[Call]:
        """Level 0 alone; `page` > 0: one class, its keys scattered over pages of so many slots.

        Same tile, warps, stages and cut, so the ratio is what contiguous storage is worth.
        """
        layer = self.pool.layer if tma else self.pool.pointers

        def run(space: Workspace, i: int) -> None:
            pages = self._pages(i, page) if page else None
            space.level0(self.q[i], layer, tile, pages)

        return self.calls(run)

    def _pages(self, index: int, page: int) -> Pages:
        source = self.pool.scattered if page == 1 else self.pool.paged16[::16] // 16
        first, count = (index * self.lengths[0] // page, -(-self.lengths[0] // page))
        line = source[first : first + count].contiguous()
        return Pages(line.expand(self.batch, -1), None, page)

    def _rotation(self, index: int) -> tuple[Workspace, torch.Tensor]:
        pool = self.pool
        source = pool.paged16 if self.storage == "cold16" else pool.paged(self.page)
        front = index * sum(self.lengths)
        width = max(self.lengths) + self.suffix
        table = torch.empty(self.batch, width, device="cuda", dtype=torch.int32)
        running, row, base = [], 0, front
        cursor = front % (pool.slots // 2)
        for length, members in zip(self.lengths, self.members, strict=True):
            part = table[row : row + members]
            if self.storage == "hot":
                part[:, :length] = torch.arange(base, base + length, device="cuda").int()
            elif self.storage == "unique":
                part[:, :length] = source[: members * length].view(members, length)
            else:
                part[:, :length] = source[cursor : cursor + length]
            cursor += length
            spans = ((0, base, length),) if self.storage == "hot" and length else ()
            running += [Running(spans, length + self.suffix)] * members
            base, row = base + length, row + members
        if self.suffix:
            count = self.batch * self.suffix
            start = pool.slots - (index + 1) * count
            own = pool.paged(self.page)[max(start, 0) :][:count].view(self.batch, self.suffix)
            offsets = torch.tensor(
                [n for n, m in zip(self.lengths, self.members, strict=True) for _ in range(m)],
                device="cuda",
            )
            columns = offsets[:, None] + torch.arange(self.suffix, device="cuda")
            table.scatter_(1, columns, own)
        choose = self.path if callable(self.path) else lambda _: self.path
        if self.page > 1:
            table = (table[:, :: self.page] // self.page).contiguous()
        plan = make_plan(running, self.planned, self.shape, choose, lambda _: self.splits)
        space = Workspace(
            self.shape, self.heads, rows=plan.rows, dtype=torch.bfloat16, device="cuda"
        )
        space.load(plan)
        return space, table
