"""The kernel-level targets of GraniKV on one GPU, as ratios within one run.

    PYTHONPATH=engine-patches/granikv python3 bench/granikv/targets.py OUT_FOLDER [SECTION ...]

Writes targets.json (every time and ratio) and <GPU>.json (the cost table).  Needs 50 GB of GPU
memory.  Which numbers are targets, and what they were on H200: bench/granikv/README.md.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path as File

import numpy as np
import torch
import triton
from granikv.backends import Mode
from granikv.calibrate import MEMBERS, SUFFIX, WAYS, calibrate, measure_cell
from granikv.dispatch import PAGED_WAYS, CostTable, Dispatcher
from granikv.external import cudnn_level0, dense_level0
from granikv.kernels import launch
from granikv.kernels.launch import Tile
from granikv.measure.cases import Case, Pool
from granikv.measure.timing import time_us
from granikv.pool import KVPool
from granikv.shapes import Path

BEGAN = time.monotonic()


class Bench:
    """Results so far; saved after every section, so that a cut run loses one section at most."""

    def __init__(self, out: File) -> None:
        self.out = out
        self.us: dict[str, float] = {}
        self.ratios: dict[str, float] = {}
        self.notes: dict[str, object] = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "driver_cuda": torch.version.cuda,
        }
        self.pool = Pool(256 * 8192 + 65_536)

    def time(self, name: str, calls: list[Callable[[], None]], budget_ms: float = 25.0) -> float:
        self.us[name] = time_us(calls, budget_ms)
        print(f"[{time.monotonic() - BEGAN:4.0f} s] {name}: {self.us[name]:.1f} us", flush=True)
        return self.us[name]

    def attempt(self, name: str, make: Callable[[], list[Callable[[], None]]]) -> None:
        """Time something that may not compile or not fit; that is a result too."""
        try:
            self.time(name, make(), 40)
        except Exception as problem:  # noqa: BLE001
            self.notes[f"{name} failed"] = repr(problem)[:200]

    def ratio(self, name: str, value: float) -> None:
        self.ratios[name] = value
        print(f"        {name} = {value:.3f}", flush=True)

    def section(self, run: Callable[["Bench"], None]) -> None:
        try:
            run(self)
        except Exception as problem:  # noqa: BLE001  one section must not cost the others
            self.notes[f"failed: {run.__name__}"] = repr(problem)[:400]
            print(f"        {run.__name__} FAILED: {problem!r}"[:500], flush=True)
        torch.cuda.empty_cache()
        result = {"notes": self.notes, "ratios": self.ratios, "us": self.us}
        (self.out / "targets.json").write_text(json.dumps(result, indent=1) + "\n")


def headline(b: Bench) -> None:
    """Targets 1, 2, 3, 6, 7, 8, 14 and 11: Llama-3.1-8B layer, B = 256, Lp = 8K, Ls = 256."""
    x, y = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    z = torch.empty_like(x)
    gemm = b.time("gemm 8192^3", [lambda: torch.mm(x, y, out=z)], 400)
    fused = Case(b.pool, [8192], [256])
    overlap = Case(b.pool, [8192], [256], mode=Mode.OVERLAP)
    for name, case in (("fused", fused), ("overlap", overlap)):
        b.notes[f"error of {name} step"] = case.error()
    level0 = b.time("level 0", fused.level0(), 60)
    b.time("level 0, pointers", fused.level0(tma=False))
    suffix = b.time("suffix + merge", fused.tails(), 60)
    steps = {
        "fused": b.time("step fused", fused.step(), 60),
        "overlap": b.time("step overlap", overlap.step(), 60),
    }
    b.time("level 0 of overlap, alone", overlap.level0())
    for splits in (1, 2, 4):
        cudnn = Case(b.pool, [8192], [256], path=Path.CUDNN, splits=splits)
        b.notes[f"error of cudnn step, {splits} splits"] = cudnn.error()
        steps[f"cudnn {splits}"] = b.time(f"step cudnn, {splits} splits", cudnn.step())
        external(b, cudnn, cudnn_level0, f"level 0 cudnn, {splits} splits")
    dense = Case(b.pool, [8192], [256], path=Path.DENSE, rotations=2)
    b.notes["error of dense step"] = dense.error()
    b.time("step dense", dense.step())
    dense_us = external(b, dense, dense_level0, "level 0 dense")
    shared = {}
    for storage in ("cold", "cold16", "hot"):
        for suffix_len in (0, 256):
            case = Case(
                b.pool, [8192], [256], suffix=suffix_len, storage=storage, path=Path.PAGED,
                mode=Mode.SPLIT,
            )  # fmt: skip
            shared[storage, suffix_len] = b.time(f"paged {storage} Ls={suffix_len}", case.step())
    unique = Case(
        b.pool, [8192], [256], suffix=0, storage="unique", path=Path.PAGED, mode=Mode.SPLIT,
        rotations=1,
    )  # fmt: skip
    unique_us = b.time("paged unique", unique.step(), 60)
    chosen = min(steps.values())
    b.notes["chosen step"] = min(steps, key=steps.__getitem__)
    b.ratio(
        "1 paged shared / level 0", min(shared[s, 0] for s in ("cold", "cold16", "hot")) / level0
    )
    b.ratio("2 paged unique / level 0", unique_us / level0)
    b.ratio("3 step paged shared / chosen", min(shared[s, 256] for s in ("cold", "hot")) / chosen)
    flops = 2 * 8192**3
    b.ratio("6 level 0 TFLOP/s / GEMM TFLOP/s", (fused.flops / level0) / (flops / gemm))
    tail_bytes = 2 * 256 * 256 * 8 * 128 * 2
    b.ratio(
        "7 suffix+merge B/s / paged unique B/s", tail_bytes / suffix * unique_us / (tail_bytes * 32)
    )
    b.ratio("8 chosen step / (level 0 + suffix)", chosen / (level0 + suffix))
    b.ratio("14 dense / level 0", dense_us / level0)
    for batch in (8, 32, 64, 128, 192, 384, 512):
        case = Case(b.pool, [8192], [batch], suffix=64)
        b.time(f"level 0 B={batch}", case.level0())
    b.ratio("11 level 0 B=192 / B=256", b.us["level 0 B=192"] / level0)


def tiles(b: Bench) -> None:
    """Other tiles than those that ship, for targets 1 and 7."""
    case = Case(b.pool, [8192], [256])
    for tile in (launch.LEVEL0, Tile(64, 4, 4), Tile(64, 4, 2)):
        b.attempt(f"level 0, {tile}", lambda t=tile: case.level0(tile=t))
    for tile in (
        launch.SUFFIX, Tile(32, 1, 2), Tile(32, 1, 4), Tile(64, 1, 2), Tile(64, 2, 2),
        Tile(64, 2, 3), Tile(16, 1, 4), Tile(32, 2, 3), Tile(64, 4, 2),
    ):  # fmt: skip
        b.attempt(f"suffix + merge, {tile}", lambda t=tile: case.tails(t))


def pages(b: Bench) -> None:
    """COLD in pages of 1, 4 and 16 slots: the paged step, and the chosen one with its suffix."""
    for page in (1, 4, 16):
        hot = Case(b.pool, [8192], [256], page=page)
        cold = Case(
            b.pool, [8192], [256], storage="cold", path=Path.PAGED, mode=Mode.SPLIT, page=page
        )
        b.time(f"step, COLD page {page}", hot.step(), 60)
        b.time(f"step paged, COLD page {page}", cold.step(), 60)
    for name in ("step", "step paged"):
        times = [b.us[f"{name}, COLD page {page}"] for page in (1, 4, 16)]
        b.ratio(f"{name}, COLD page 1 / best of 1, 4, 16", times[0] / min(times))


def external(b: Bench, case: Case, run: Callable[..., None], name: str) -> float:
    def call(space, i):  # type: ignore[no-untyped-def]
        for ext in space.plan_in_force.external:
            run(ext, case.q[i], b.pool.layer, space.arrays["order"], space.po, space.pl, case.heads)

    return b.time(name, case.calls(call))


def storage(b: Bench) -> None:
    """Target 5: the same level-0 kernel through a table / contiguous."""
    for batch in (256, 32):
        case = Case(b.pool, [8192], [batch], suffix=64)
        base = b.time(f"level 0 contiguous B={batch}", case.level0())
        for page in (16, 1):
            us = b.time(f"level 0 gathered, page {page}, B={batch}", case.level0(page=page))
            b.ratio(f"5 gathered page {page} / contiguous, B={batch}", us / base)


def classes(b: Bench) -> None:
    """Targets 9 and 10: classes of unequal length in one launch, and many equal classes."""
    for lengths in ((2048, 4096, 8192, 16384), (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)):
        k, members = len(lengths), [256 // len(lengths)] * len(lengths)
        case = Case(b.pool, lengths, members)
        b.notes[f"error of k={k} unequal step"] = case.error()
        one = b.time(f"level 0 k={k} unequal, one launch", case.level0())
        apart = [Case(b.pool, [n], [m]) for n, m in zip(lengths, members, strict=True)]

        def each(i: int, apart: list[Case] = apart) -> None:
            for part in apart:
                part.spaces[i].level0(part.q[i], b.pool.layer)

        many = b.time(
            f"level 0 k={k} unequal, a launch a class", [lambda i=i: each(i) for i in range(4)]
        )
        paged = Case(
            b.pool, lengths, members, suffix=0, storage="cold", path=Path.PAGED, mode=Mode.SPLIT
        )
        us = b.time(f"paged k={k} unequal", paged.step())
        b.ratio(f"9 paged / level 0, k={k} unequal", us / one)
        b.ratio(f"10 one launch / a launch a class, k={k}", one / many)
        steps = [
            b.time(f"step k={k} unequal {m}", Case(b.pool, lengths, members, mode=m).step())
            for m in (Mode.FUSED, Mode.OVERLAP)
        ]
        paged = Case(b.pool, lengths, members, storage="cold", path=Path.PAGED, mode=Mode.SPLIT)
        b.ratio(
            f"step paged / chosen, k={k} unequal",
            b.time(f"step paged k={k} unequal", paged.step()) / min(steps),
        )
    for k in (1, 4, 16, 64):
        lengths, members = [8192] * k, [256 // k] * k
        turns = 4 if k <= 16 else 1
        steps = [
            b.time(
                f"step {k} x 8K {m}", Case(b.pool, lengths, members, mode=m, rotations=turns).step()
            )
            for m in (Mode.FUSED, Mode.OVERLAP)
        ]
        paged = Case(
            b.pool,
            lengths,
            members,
            storage="cold",
            path=Path.PAGED,
            mode=Mode.SPLIT,
            rotations=turns,
        )
        us = b.time(f"step paged {k} x 8K", paged.step())
        b.ratio(f"9 step paged / chosen, {k} x 8K", us / min(steps))


def promotion(b: Bench) -> None:
    """Target 13: promoting 8K tokens / what one layer's step gains by it at B = 256."""
    source = b.pool.scattered[:8192].contiguous()
    targets = [
        torch.arange(i * 8192, (i + 1) * 8192, device="cuda", dtype=torch.int32)
        for i in (100, 110, 120, 130)
    ]
    us = b.time(
        "promote 8K tokens, K and V, one layer",
        [lambda t=t: launch.copy_slots(b.pool.k, b.pool.v, source, t) for t in targets],
    )
    gain = b.us["paged cold Ls=256"] - min(b.us["step fused"], b.us["step overlap"])
    b.ratio("13 promotion / gain of one step", us / gain)
    kv = KVPool.empty(40_000, 2, 8, 128, torch.bfloat16, "cuda")
    for layer in kv.layers:
        layer.k.normal_()
        layer.v.normal_()
    slots = np.random.default_rng(1).permutation(20_000)[:8192]
    before = [layer.k[torch.from_numpy(slots).cuda()].clone() for layer in kv.layers]
    kv.copy(slots, np.arange(30_000, 38_192))
    equal = all(
        torch.equal(layer.k[30_000:38_192], was)
        for layer, was in zip(kv.layers, before, strict=True)
    )
    b.notes["promotion keeps every bit"] = equal


def heads(b: Bench) -> None:
    """Fewer KV heads a rank (TP), B = 256, Lp = 8K."""
    for kv_heads, group in ((4, 5), (2, 5), (1, 5), (1, 8)):
        pool = Pool(200_000, kv_heads)
        case = Case(pool, [8192], [256], group=group)
        b.notes[f"error Hkv={kv_heads} G={group}"] = case.error()
        one = b.time(f"level 0 Hkv={kv_heads} G={group}", case.level0())
        paged = Case(
            pool,
            [8192],
            [256],
            group=group,
            suffix=0,
            storage="cold",
            path=Path.PAGED,
            mode=Mode.SPLIT,
        )
        us = b.time(f"paged Hkv={kv_heads} G={group}", paged.step())
        b.ratio(f"paged / level 0, Hkv={kv_heads} G={group}", us / one)


def table(b: Bench) -> None:
    """The cost table, shipped with the package."""
    costs = calibrate(kv_heads=8, group=4, dim=128, progress=lambda line: print(line, flush=True))
    name = torch.cuda.get_device_name().replace(" ", "_") + ".json"
    (b.out / name).write_text(json.dumps([costs.to_json()], separators=(",", ":")) + "\n")
    b.notes["tie line, least Lp per n"] = dict(zip(map(str, MEMBERS), costs.tie, strict=True))


def dispatch(b: Bench) -> None:
    """Target 12: chosen / best and chosen / paged, measured anew on cells beside the table's."""
    name = torch.cuda.get_device_name().replace(" ", "_") + ".json"
    costs = CostTable.from_json(json.loads((b.out / name).read_text())[0])
    pool = Pool(4 * (16_384 + 400 * SUFFIX) + 65_536)
    worst = {"best": (0.0, ""), "paged": (0.0, "")}
    cells = {}
    for n in (1, 5, 10, 20, 40, 80, 160, 320):
        for length in (192, 640, 1280, 2560, 5120, 10_240):
            got = {w: measure_cell(pool, w, n, length, group=4, budget_ms=5.0) for w in WAYS}
            way = Dispatcher(costs).choose(n, length).way
            best = min(got.values())
            paged = min(got[w] for w in PAGED_WAYS)
            cells[f"n={n} Lp={length}"] = {
                "chosen": way.value,
                **{w.value: us for w, us in got.items()},
            }
            for against, us in (("best", best), ("paged", paged)):
                worst[against] = max(worst[against], (got[way] / us, f"n={n} Lp={length} {way}"))
    b.notes["dispatch cells"] = cells
    for against, (value, where) in worst.items():
        b.ratio(f"12 chosen / {against}, worst cell", value)
        b.notes[f"12 worst cell against {against}"] = where


def main() -> None:
    out = File(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(out)
    wanted = sys.argv[2:]
    for section in (headline, tiles, pages, storage, classes, promotion, table, dispatch, heads):
        if not wanted or section.__name__ in wanted:
            bench.section(section)
    bench.notes["seconds"] = time.monotonic() - BEGAN


if __name__ == "__main__":
    main()
