"""Level 0 by other people's products: cuDNN's attention, and plain matrix products.

Both take one class a call and a contiguous slab, which is what HOT storage gives them.  cuDNN is
reached through a private torch operator, hence the guard; without it the caller stays on the
Triton path.  Dense is the paper's backend: it loses to a tiled level 0 in every cell measured on
H200 (bench/granikv) because the score matrix goes through memory, and is kept to show that.
"""

import torch

from granikv.kernels import launch
from granikv.kernels.launch import Heads, Layer
from granikv.shapes import External


def cudnn_available() -> bool:
    """Whether torch has the operator and this GPU can run it."""
    return (
        torch.cuda.is_available()
        and torch.backends.cudnn.is_available()
        and hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention")
    )


def cudnn_splits(rows: int, length: int, kv_heads: int, slots: int = 132) -> int:
    """How many key ranges keep the GPU busy: cuDNN makes one program per 128 rows and head."""
    programs = -(-rows // 128) * kv_heads
    splits = max(1, slots // programs)
    while splits > 1 and (length % splits or length // splits < 128):
        splits -= 1
    return splits


def cudnn_level0(
    external: External, q: torch.Tensor, layer: Layer, order: torch.Tensor,
    po: torch.Tensor, pl: torch.Tensor, heads: Heads,
) -> None:  # fmt: skip
    """One class by cuDNN; key splits ride the batch axis by strides, nothing is repacked."""
    cls, splits = external.cls, external.splits
    rows = q[order[cls.first : cls.last].long()]  # [n, Hq, D]
    part = cls.length // splits
    k, v = (
        x[cls.base : cls.base + cls.length].view(splits, part, heads.kv_heads, heads.dim)
        for x in (layer.k, layer.v)
    )
    out, lse = torch.ops.aten._scaled_dot_product_cudnn_attention(
        rows.transpose(0, 1)[None].expand(splits, -1, -1, -1),
        k.transpose(1, 2), v.transpose(1, 2), None, True, 0.0, False, False, scale=heads.scale,
    )[:2]  # fmt: skip
    x_lse = lse.reshape(splits, heads.kv_heads * heads.group, cls.members).transpose(1, 2)
    launch.adopt(out.transpose(1, 2), x_lse, external.out_row, po, pl, heads)


def dense_level0(
    external: External, q: torch.Tensor, layer: Layer, order: torch.Tensor,
    po: torch.Tensor, pl: torch.Tensor, heads: Heads,
) -> None:  # fmt: skip
    """One class as two batched products with a softmax between them."""
    cls = external.cls
    rows = q[order[cls.first : cls.last].long()]
    members, group = cls.members, heads.group
    grouped = rows.view(members, heads.kv_heads, group, heads.dim).transpose(0, 1)
    grouped = grouped.reshape(heads.kv_heads, members * group, heads.dim)
    k, v = (x[cls.base : cls.base + cls.length].transpose(0, 1) for x in (layer.k, layer.v))
    scores = torch.bmm(grouped, k.transpose(1, 2))
    lse = torch.empty(scores.shape[:2], dtype=torch.float32, device=q.device)
    launch.softmax_lse(scores.view(-1, cls.length), lse.view(-1), heads.scale2)
    out = torch.bmm(scores, v)
    shape = (heads.kv_heads, members, group)
    x = out.view(*shape, heads.dim).permute(1, 0, 2, 3).reshape(1, members, -1, heads.dim)
    x_lse = lse.view(shape).permute(1, 0, 2).reshape(1, members, -1)
    launch.adopt(x, x_lse, external.out_row, po, pl, heads, 1.0)
