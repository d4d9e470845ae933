"""Random decode steps for the kernel tests: slabs, slot tables, NaN wherever nobody may read."""

from dataclasses import dataclass

import torch

from granikv.backends import Mode, Workspace
from granikv.kernels.launch import Heads, Layer
from granikv.plan import make_plan
from granikv.shapes import Class, Grain, Path, PlanShape, Running

NAN = float("nan")


@dataclass
class Scene:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    running: list[Running]
    heads: Heads
    grain: Grain
    page: int

    def layer(self, *, tma: bool) -> Layer:
        return Layer.of(self.k, self.v, tma=tma)

    def workspace(
        self,
        *,
        path: Path = Path.CASCADE,
        splits: int = 1,
        mode: Mode = Mode.FUSED,
        **shape: int,
    ) -> Workspace:
        made = PlanShape(batch=len(self.running), workers=self.grain.workers, **shape)
        grain = mode.grain(self.grain)
        plan = make_plan(self.running, grain, made, lambda _: path, lambda _: splits)
        device, dtype = self.q.device, self.q.dtype
        space = Workspace(made, self.heads, rows=2 * plan.rows + 64, dtype=dtype, device=device)
        space.po.fill_(NAN)
        space.pl.fill_(NAN)
        space.load(plan)
        return space


def make_scene(
    trees: list[tuple[list[int], int]],
    *,
    seed: int = 0,
    kv_heads: int = 2,
    group: int = 4,
    dim: int = 64,
    suffix: tuple[int, int] = (0, 40),
    page: int = 1,
    slots: int = 8,
    programs: int = 16,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Scene:
    """`trees`: (lengths of the HOT segments on the path, how many requests end there).

    Trees with an equal first segment length share that segment; requests are shuffled.
    """
    rng = torch.Generator().manual_seed(seed)
    bases: dict[tuple[int, ...], int] = {}
    top = 3
    paths: list[tuple[list[int], list[int]]] = []
    for lengths, members in trees:
        path = []
        for level in range(len(lengths)):
            key = tuple(lengths[: level + 1])
            if key not in bases:
                bases[key] = top
                top += lengths[level] + int(torch.randint(0, 3, (1,), generator=rng))
            path.append(bases[key])
        paths += [(lengths, path)] * members
    shuffle = torch.randperm(len(paths), generator=rng).tolist()
    paths = [paths[i] for i in shuffle]
    tails = torch.randint(suffix[0], suffix[1] + 1, (len(paths),), generator=rng).tolist()
    first_page = -(-top // page)
    pages_each = -(-suffix[1] // page) + 1
    total = (first_page + len(paths) * pages_each) * page
    order = torch.randperm(len(paths) * pages_each, generator=rng) + first_page
    k = torch.full((total, kv_heads, dim), NAN)
    v = torch.full((total, kv_heads, dim), NAN)
    width = max(sum(p[0]) for p in paths) + pages_each * page
    table = torch.zeros(len(paths), width, dtype=torch.int32)
    running = []
    for row, ((lengths, path), tail) in enumerate(zip(paths, tails, strict=True)):
        at, spans = 0, []
        for length, base in zip(lengths, path, strict=True):
            table[row, at : at + length] = torch.arange(base, base + length, dtype=torch.int32)
            spans.append((at, base, length))
            at += length
        mine = order[row * pages_each : (row + 1) * pages_each]
        cells = (mine[:, None] * page + torch.arange(page)).reshape(-1)[:tail]
        table[row, at : at + tail] = cells.to(torch.int32)
        running.append(Running(tuple(spans), at + tail))
    used = torch.cat([table[r, : running[r].length] for r in range(len(running))]).long().unique()
    k[used] = torch.randn(len(used), kv_heads, dim, generator=rng)
    v[used] = torch.randn(len(used), kv_heads, dim, generator=rng)
    q = torch.randn(len(paths), kv_heads * group, dim, generator=rng)
    lengths_t = torch.tensor([r.length for r in running], dtype=torch.int32)
    return Scene(
        q.to(device, dtype), k.to(device, dtype), v.to(device, dtype), table.to(device),
        lengths_t.to(device), running, Heads(kv_heads, group, dim, dim**-0.5),
        Grain(kv_heads, group, slots=slots, range_programs=programs, min_range=64), page,
    )  # fmt: skip


def class_paths(*, cheap: int) -> object:
    """A chooser that sends short classes through the slot table."""

    def choose(cls: Class) -> Path:
        return Path.PAGED if cls.length < cheap else Path.CASCADE

    return choose
