"""Attention through slot tables.

`attend`        one block of keys by online softmax, of every kernel here
`paged_kernel`  closed ranges and open tails of requests through the slot table, split over keys
"""

import triton
import triton.language as tl


@triton.jit
def attend(q, k, v, acc, total, top, scale, keys, end, MASKED: tl.constexpr):
    """One block of keys by online softmax; `top` and `total` are to base 2."""
    score = tl.dot(q, k.T)
    if MASKED:
        score = tl.where(keys[None, :] < end, score, float("-inf"))
    new_top = tl.maximum(top, tl.max(score, 1) * scale)
    weight = tl.math.exp2(score * scale - new_top[:, None])
    fade = tl.math.exp2(top - new_top)
    total = total * fade + tl.sum(weight, 1)
    acc = acc * fade[:, None]
    acc = tl.dot(weight.to(v.dtype), v, acc)
    return acc, total, new_top


@triton.jit
def table_range(
    request,
    n0,
    n1,
    head,
    Q,
    K,
    V,
    TABLE,
    ROWS,
    scale,
    q_row,
    q_head,
    kv_slot,
    kv_head,
    table_row,
    G: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
):
    """Positions [n0, n1) of one request and KV head through the table: acc, total, top.

    With PAGE > 1 the table holds one page number a page and positions are aligned to pages.
    MAPPED: request r's row of the table is ROWS[r], for engines whose table has a row a slot of
    theirs.  G query heads fill 16 rows, the least that the tensor cores take.
    """
    g = tl.arange(0, 16)
    dim = tl.arange(0, D)
    block = tl.arange(0, KEYS)
    q_at = request.to(tl.int64) * q_row + (head * G + g) * q_head
    q = tl.load(Q + q_at[:, None] + dim[None, :], mask=(g < G)[:, None], other=0.0)
    top = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    row = tl.load(ROWS + request) if MAPPED else request
    table = TABLE + row.to(tl.int64) * table_row
    for n in range(n0, n1, KEYS):
        keys = n + block
        there = keys < n1
        if PAGE == 1:
            slot = tl.load(table + keys, mask=there, other=0)
        else:
            slot = tl.load(table + keys // PAGE, mask=there, other=0) * PAGE + keys % PAGE
        at = slot.to(tl.int64) * kv_slot + head * kv_head
        k = tl.load(K + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        v = tl.load(V + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        acc, total, top = attend(q, k, v, acc, total, top, scale, keys, n1, True)
    return acc, total, top


@triton.jit
def table_item(
    ITEM,
    head,
    Q,
    K,
    V,
    TABLE,
    ROWS,
    LENGTHS,
    PO,
    PL,
    scale,
    q_row,
    q_head,
    kv_slot,
    kv_head,
    table_row,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
):
    """One range as a partial.  An end of -1 is the request's length."""
    request = tl.load(ITEM)
    n0 = tl.load(ITEM + 1)
    n1 = tl.load(ITEM + 2)
    out = tl.load(ITEM + 3)
    n1 = tl.where(n1 < 0, tl.load(LENGTHS + request).to(tl.int32), n1)
    acc, total, top = table_range(
        request, n0, n1, head, Q, K, V, TABLE, ROWS, scale,
        q_row, q_head, kv_slot, kv_head, table_row, G, D, KEYS, PAGE, MAPPED,
    )  # fmt: skip
    g = tl.arange(0, 16)
    dim = tl.arange(0, D)
    to = (out + g).to(tl.int64) * heads + head
    some = total > 0.0
    result = (acc / tl.where(some, total, 1.0)[:, None]).to(PO.dtype.element_ty)
    lse = tl.where(some, top + tl.math.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(PO + to[:, None] * D + dim[None, :], result, mask=(g < G)[:, None])
    tl.store(PL + to, lse, mask=g < G)


@triton.jit
def paged_kernel(
    Q,
    K,
    V,
    TABLE,
    ROWS,
    LENGTHS,
    ITEMS,
    LIMIT,
    PO,
    PL,
    scale,
    q_row,
    q_head,
    kv_slot,
    kv_head,
    table_row,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
    LOOP: tl.constexpr,
):
    """One range of one request each: grid (heads, >= LIMIT[0]), or (heads, any) with LOOP.

    LOOP is for captured graphs: a grid of the plan's capacity would be mostly programs with
    nothing to do.
    """
    head = tl.program_id(0)
    first = tl.program_id(1)
    limit = tl.load(LIMIT)
    if LOOP:
        for i in range(first, limit, tl.num_programs(1)):
            table_item(
                ITEMS + i * 4, head, Q, K, V, TABLE, ROWS, LENGTHS, PO, PL, scale, q_row, q_head,
                kv_slot, kv_head, table_row, heads, G, D, KEYS, PAGE, MAPPED,
            )  # fmt: skip
    elif first < limit:
        table_item(
            ITEMS + first * 4, head, Q, K, V, TABLE, ROWS, LENGTHS, PO, PL, scale, q_row, q_head,
            kv_slot, kv_head, table_row, heads, G, D, KEYS, PAGE, MAPPED,
        )  # fmt: skip
