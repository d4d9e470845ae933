"""Measures the cost table of this GPU: every way over a grid of members and prefix lengths."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

from granikv.backends import Mode
from granikv.dispatch import CostTable, Way
from granikv.external import cudnn_available, cudnn_splits
from granikv.measure.cases import Case, Pool
from granikv.measure.timing import time_us

MEMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LENGTHS = (128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
SUFFIX = 256
WAYS = (
    Way.PAGED_FUSED,
    Way.PAGED_SPLIT,
    Way.CASCADE_FUSED,
    Way.CASCADE_SPLIT,
    Way.CASCADE_OVERLAP,
    Way.CUDNN_FUSED,
)


def measure_cell(
    pool: Pool, way: Way, members: int, length: int, *, group: int, budget_ms: float = 2.5
) -> float:
    """Microseconds of one layer's step, `members` requests over one prefix; slabs from memory."""
    splits = cudnn_splits(members * group, length, pool.kv_heads)
    case = Case(
        pool, [length], [members], suffix=SUFFIX, group=group, path=way.path,
        splits=splits, mode=Mode(way.mode),
    )  # fmt: skip
    return time_us(case.step(), budget_ms)


def calibrate(
    *,
    kv_heads: int,
    group: int,
    dim: int,
    members: Sequence[int] = MEMBERS,
    lengths: Sequence[int] = LENGTHS,
    progress: Callable[[str], None] = lambda _: None,
) -> CostTable:
    """Measure this GPU.  About two minutes on H200 for the default grid."""
    slots = 4 * (max(lengths) + max(members) * SUFFIX) + 65_536
    pool = Pool(slots, kv_heads, dim)
    ways = [w for w in WAYS if w is not Way.CUDNN_FUSED or cudnn_available()]
    us: dict[Way, tuple[tuple[float, ...], ...]] = {}
    for way in ways:
        rows = []
        for n in members:
            rows.append(tuple(measure_cell(pool, way, n, lp, group=group) for lp in lengths))
            progress(f"{way} n={n}: " + " ".join(f"{x:.1f}" for x in rows[-1]))
        us[way] = tuple(rows)
    return CostTable(key_of(kv_heads, group, dim), tuple(members), tuple(lengths), us)


def key_of(kv_heads: int, group: int, dim: int) -> dict[str, Any]:
    """What a table was measured on and for."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "kv_heads": kv_heads,
        "group": group,
        "dim": dim,
        "dtype": "bfloat16",
        "suffix": SUFFIX,
    }
