"""Storage ablation: the level-0 loop of the product, gathering its keys through a slot table.

Same tile, warps, stages and cut as `granikv.kernels.attention.level0_kernel`; only where a block
of keys comes from differs, so the ratio of the two times is what contiguous storage is worth.
"""

import triton
import triton.language as tl
from granikv.kernels import launch
from granikv.kernels.attention import attend
from granikv.measure.cases import Call, Case


@triton.jit
def gathered_level0(
    Q,
    K,
    V,
    ORDER,
    WORKERS,
    ITEMS,
    TABLE,
    PO,
    PL,
    scale,
    q_row,
    q_head,
    kv_slot,
    kv_head,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
):
    """`level0_kernel` with whole blocks only; TABLE maps slab positions to slots or pages."""
    head = tl.program_id(0) % heads
    worker = tl.program_id(0) // heads
    for i in range(tl.load(WORKERS + worker), tl.load(WORKERS + worker + 1)):
        item = ITEMS + i * 8
        row0 = tl.load(item)
        row1 = tl.load(item + 1)
        base = tl.load(item + 2)
        n0 = tl.load(item + 3)
        n1 = tl.load(item + 4)
        out = tl.load(item + 5)
        rows = row0 + tl.arange(0, ROWS)
        live = rows < row1
        dim = tl.arange(0, D)
        block = tl.arange(0, KEYS)
        request = tl.load(ORDER + rows // G, mask=live, other=0).to(tl.int64)
        q_at = request * q_row + (head * G + rows % G) * q_head
        q = tl.load(Q + q_at[:, None] + dim[None, :], mask=live[:, None], other=0.0)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, D], tl.float32)
        for n in range(n0, n1, KEYS):
            at = base + n + block
            if PAGE == 1:
                slot = tl.load(TABLE + at)
            else:
                slot = tl.load(TABLE + at // PAGE) * PAGE + at % PAGE
            where = slot.to(tl.int64) * kv_slot + head * kv_head
            k = tl.load(K + where[:, None] + dim[None, :])
            v = tl.load(V + where[:, None] + dim[None, :])
            acc, total, top = attend(q, k, v, acc, total, top, scale, block, n1, False)
        to = (out + rows - row0).to(tl.int64) * heads + head
        result = (acc / total[:, None]).to(PO.dtype.element_ty)
        tl.store(PO + to[:, None] * D + dim[None, :], result, mask=live[:, None])
        tl.store(PL + to, top + tl.math.log2(total), mask=live)


def calls(case: Case, page: int) -> list[Call]:
    """Level 0 of a case with its keys scattered by token (page 1) or by pages of 16."""
    pool, heads = case.pool, case.heads
    table = pool.scattered if page == 1 else (pool.paged16[::16] // 16).contiguous()

    def run(space, i):  # type: ignore[no-untyped-def]
        a = space.arrays
        gathered_level0[(space.plan_in_force.workers * heads.kv_heads,)](
            case.q[i], pool.k, pool.v, a["order"], a["workers"], a["items"], table,
            space.po, space.pl, heads.scale2, case.q[i].stride(0), case.q[i].stride(1),
            pool.k.stride(0), pool.k.stride(1), heads.kv_heads, G=heads.group, D=heads.dim,
            ROWS=launch.LEVEL0_ROWS, KEYS=launch.LEVEL0.keys, PAGE=page,
            num_warps=launch.LEVEL0.warps, num_stages=launch.LEVEL0.stages,
        )  # fmt: skip

    return case.calls(run)
