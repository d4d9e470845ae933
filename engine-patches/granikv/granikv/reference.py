"""The f32 reference of one decode step: what every path is compared with."""

import torch


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [Hq, D] over k, v [n, Hkv, D], n >= 0: output, and LSE [Hq] to base 2."""
    q_heads, dim = q.shape
    keys, heads = k.shape[:2]
    if not keys:
        return q.new_zeros(q_heads, dim, dtype=torch.float32), q.new_full(
            (q_heads,), float("-inf"), dtype=torch.float32
        )
    group = q_heads // heads
    grouped = q.float().view(heads, group, dim)
    scores = torch.einsum("hgd,nhd->hgn", grouped, k.float()) * scale
    out = torch.einsum("hgn,nhd->hgd", scores.softmax(-1), v.float())
    lse = torch.logsumexp(scores, -1) * 1.4426950408889634
    return out.reshape(q_heads, dim), lse.reshape(q_heads)


def step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every request of q [B, Hq, D] over its own slots in table [B, >= length]."""
    results = []
    for request in range(q.shape[0]):
        slots = table[request, : int(lengths[request])].long()
        results.append(attention(q[request], k[slots], v[slots], scale))
    return torch.stack([r[0] for r in results]), torch.stack([r[1] for r in results])


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want|| in f32; NaN anywhere gives NaN, which passes no bound."""
    want = want.float()
    return float((got.float() - want).norm() / want.norm())
