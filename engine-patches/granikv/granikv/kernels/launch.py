"""Host side of the kernels: strides, grids and tile shapes.  Takes tensors, returns nothing."""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from granikv.kernels.attention import paged_kernel
from granikv.kernels.combine import (
    adopt_kernel,
    merge_kernel,
    softmax_lse_kernel,
    suffix_merge_kernel,
)
from granikv.kernels.move import copy_slots_kernel
from granikv.kernels.slab import level0_kernel

LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Tile:
    """Compile-time shape of one kernel: keys a block, warps, pipeline stages."""

    keys: int
    warps: int
    stages: int


# Measured best on H200 at B = 256, Lp = 8K (bench/granikv); none of them is far off elsewhere.
LEVEL0 = Tile(64, 4, 3)
LEVEL0_ROWS = 64
PAGED = Tile(128, 4, 2)
PAGED_SMALL = Tile(64, 4, 3)
SUFFIX = Tile(32, 1, 3)
# Beside level 0 on the same multiprocessor: small enough for what that leaves of it.
BESIDE = Tile(32, 1, 2)


@dataclass(frozen=True, slots=True)
class Layer:
    """K and V of one layer, [slots, Hkv, D] each, with their copy-engine descriptors if any."""

    k: torch.Tensor
    v: torch.Tensor
    k_desc: Any = None
    v_desc: Any = None

    @classmethod
    def of(cls, k: torch.Tensor, v: torch.Tensor, *, tma: bool) -> "Layer":
        """Wrap a layer; `tma` only where the GPU has it and a slot's heads are contiguous."""
        slots, heads, dim = k.shape
        if k.stride() != v.stride() or k.stride(2) != 1:
            raise ValueError("K and V must have equal strides and a contiguous last axis")
        if not tma or k.stride(1) != dim:
            return cls(k, v)
        shape, strides = [slots, heads * dim], [k.stride(0), 1]
        box = [LEVEL0.keys, dim]
        return cls(
            k, v, TensorDescriptor(k, shape, strides, box), TensorDescriptor(v, shape, strides, box)
        )

    @property
    def tma(self) -> bool:
        """Whether level 0 may use the copy engine."""
        return self.k_desc is not None


@dataclass(frozen=True, slots=True)
class Heads:
    """Head geometry and score scale of a model, as the kernels take them."""

    kv_heads: int
    group: int
    dim: int
    scale: float  # natural: 1 / sqrt(D)

    @property
    def scale2(self) -> float:
        """For scores to base 2."""
        return self.scale * LOG2E


@dataclass(frozen=True, slots=True)
class Pages:
    """A slot table in place of slabs: what contiguous storage is measured against."""

    table: torch.Tensor  # [rows, >= length] int32, slots or pages of `page` slots
    rows: torch.Tensor | None = None  # request -> row of the table; None: the same number
    page: int = 1


def level0(
    q: torch.Tensor, layer: Layer, order: torch.Tensor, workers: torch.Tensor,
    items: torch.Tensor, po: torch.Tensor, pl: torch.Tensor, heads: Heads, count: int,
    tile: Tile = LEVEL0, pages: Pages | None = None,
) -> None:  # fmt: skip
    """Grouped level 0: `count` workers a KV head over the plan's items, slabs unless `pages`."""
    table = pages.table if pages else order
    level0_kernel[(count * heads.kv_heads,)](
        q, layer.k, layer.v, layer.k_desc or layer.k, layer.v_desc or layer.v, order, table,
        pages.rows if pages and pages.rows is not None else order, workers, items, po, pl,
        heads.scale2, q.stride(0), q.stride(1), layer.k.stride(0), layer.k.stride(1),
        table.stride(0), heads.kv_heads,
        G=heads.group, D=heads.dim, ROWS=LEVEL0_ROWS, KEYS=tile.keys,
        TMA=layer.tma and pages is None, PAGE=pages.page if pages else 0,
        MAPPED=pages is not None and pages.rows is not None,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def paged(
    q: torch.Tensor, layer: Layer, table: torch.Tensor, lengths: torch.Tensor,
    ranges: torch.Tensor, limit: torch.Tensor, count: int, po: torch.Tensor, pl: torch.Tensor,
    heads: Heads, page: int = 1, tile: Tile = PAGED, rows: torch.Tensor | None = None, *,
    loop: bool = False,
) -> None:  # fmt: skip
    """The first `limit[0]` ranges through the slot table, each as a partial.

    `count` programs a KV head: at least as many as ranges, or any number with `loop`.
    """
    paged_kernel[(heads.kv_heads, count)](
        q, layer.k, layer.v, table, table if rows is None else rows, lengths, ranges, limit, po,
        pl, heads.scale2,
        q.stride(0), q.stride(1), layer.k.stride(0), layer.k.stride(1), table.stride(0),
        heads.kv_heads, G=heads.group, D=heads.dim, KEYS=tile.keys, PAGE=page,
        MAPPED=rows is not None, LOOP=loop, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def suffix_merge(
    q: torch.Tensor, layer: Layer, table: torch.Tensor, lengths: torch.Tensor,
    tails: torch.Tensor, po: torch.Tensor, pl: torch.Tensor, parts: torch.Tensor,
    part_count: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, heads: Heads,
    page: int = 1, tile: Tile = SUFFIX, rows: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Every request's open tail, merged with its partials into `out` and `lse`."""
    suffix_merge_kernel[(heads.kv_heads, q.shape[0])](
        q, layer.k, layer.v, table, table if rows is None else rows, lengths, tails, po, pl, parts,
        part_count, out, lse, heads.scale2, q.stride(0), q.stride(1), layer.k.stride(0),
        layer.k.stride(1),
        table.stride(0), parts.stride(0), out.stride(0), out.stride(1), lse.stride(0),
        heads.kv_heads, G=heads.group, D=heads.dim, KEYS=tile.keys, PAGE=page,
        MAPPED=rows is not None, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def merge(
    po: torch.Tensor, pl: torch.Tensor, parts: torch.Tensor, part_count: torch.Tensor,
    out: torch.Tensor, lse: torch.Tensor, heads: Heads, most: int = 8,
) -> None:  # fmt: skip
    """The merge alone, tails included, of every request of `out`; `most` partials is a hint."""
    single = most > 8  # few requests in many pieces: more programs, more partials at once
    merge_kernel[(heads.kv_heads * (heads.group if single else 1), out.shape[0])](
        po, pl, parts, part_count, out, lse, parts.stride(0), out.stride(0), out.stride(1),
        lse.stride(0), heads.kv_heads, G=heads.group, D=heads.dim,
        R=1 if single else triton.next_power_of_2(heads.group), BLOCK=32 if single else 4,
        SINGLE=single, num_warps=4 if single else 1,
    )  # fmt: skip


def adopt(
    x: torch.Tensor, x_lse: torch.Tensor, first_row: int, po: torch.Tensor, pl: torch.Tensor,
    heads: Heads, lse_scale: float = LOG2E,
) -> None:  # fmt: skip
    """Partials x [splits, members, Hq, D], LSE [splits, members, Hq] times `lse_scale` -> rows."""
    splits, members = x.shape[:2]
    adopt_kernel[(members, heads.kv_heads, splits)](
        x, x_lse, po, pl, first_row, lse_scale, members,
        x.stride(0), x.stride(1), x.stride(2), *x_lse.stride(),
        heads.kv_heads, members * heads.group,
        G=heads.group, D=heads.dim, R=triton.next_power_of_2(heads.group), num_warps=1,
    )  # fmt: skip


def softmax_lse(scores: torch.Tensor, lse: torch.Tensor, scale2: float) -> None:
    """Row softmax of a contiguous [rows, columns] matrix in place; one program a row."""
    rows, columns = scores.shape
    if columns > 65_536:
        raise ValueError(f"a row of {columns} scores does not fit one program")
    softmax_lse_kernel[(rows,)](
        scores, lse, columns, scale2, BLOCK=triton.next_power_of_2(columns), num_warps=8
    )


def copy_slots(
    k: torch.Tensor, v: torch.Tensor, source: torch.Tensor, target: torch.Tensor
) -> None:
    """One layer's K and V from each source slot to its target, on the current stream."""
    width = k.shape[1] * k.shape[2]
    count = source.shape[0]
    copy_slots_kernel[(triton.cdiv(count, 16), 2)](
        k, v, source, target, count, k.stride(0), WIDTH=width, BLOCK=16, num_warps=4
    )
