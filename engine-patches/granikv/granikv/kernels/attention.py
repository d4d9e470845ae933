"""Attention over slabs and over slot tables.

`level0_kernel`  every HOT class of a step against its slab, in equal pieces of keys
`paged_kernel`   closed ranges and open tails of requests through the slot table, split over keys
"""

import triton
import triton.language as tl


@triton.jit
def attend(
    q, k, v, acc, total, top, scale, keys, end, MASKED: tl.constexpr, LAZY: tl.constexpr = False
):
    """One block of keys by online softmax; `top` and `total` are to base 2.

    LAZY: `top` follows a row's maximum only when one has risen by more than 8, so that most blocks
    need no rescaling; weights then stay below 2^8, and the quotient is the same.
    """
    score = tl.dot(q, k.T)
    if MASKED:
        score = tl.where(keys[None, :] < end, score, float("-inf"))
    new_top = tl.maximum(top, tl.max(score, 1) * scale)
    if LAZY:
        if tl.max(new_top - top, 0) > 8.0:
            fade = tl.math.exp2(top - new_top)
            total = total * fade
            acc = acc * fade[:, None]
            top = new_top
    else:
        fade = tl.math.exp2(top - new_top)
        total = total * fade
        acc = acc * fade[:, None]
        top = new_top
    weight = tl.math.exp2(score * scale - top[:, None])
    total += tl.sum(weight, 1)
    acc = tl.dot(weight.to(v.dtype), v, acc)
    return acc, total, top


@triton.jit
def slab_slot(TABLE, at, there, PAGE: tl.constexpr):
    """Slots of places `at`: themselves in a slab, through the table for pages of PAGE slots."""
    if PAGE == 0:
        slot = at
    elif PAGE == 1:
        slot = tl.load(TABLE + at, mask=there, other=0)
    else:
        slot = tl.load(TABLE + at // PAGE, mask=there, other=0) * PAGE + at % PAGE
    return slot


@triton.jit
def slab_item(
    ITEM,
    head,
    Q,
    K,
    V,
    k_desc,
    v_desc,
    ORDER,
    TABLE,
    TABLE_ROWS,
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
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    TMA: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
    LAZY: tl.constexpr,
):
    """Rows [row0, row1) of one class against keys [n0, n1) of its slab, one KV head.

    A row is position * G + g in the plan's order, so requests of one class are adjacent.  Keys
    behind the last whole block are read by masked pointers: a TMA box would reach into the next
    slab, and 0 x NaN is NaN.

    PAGE > 0 is the storage that a slab is measured against, a cascade over pages: the class's keys
    come through the slot table of its first request, a slot (1) or a page of so many slots each.
    """
    row0 = tl.load(ITEM)
    row1 = tl.load(ITEM + 1)
    base = tl.load(ITEM + 2)
    n0 = tl.load(ITEM + 3)
    n1 = tl.load(ITEM + 4)
    out = tl.load(ITEM + 5)
    if PAGE:
        first = tl.load(ORDER + row0 // G)
        line = tl.load(TABLE_ROWS + first) if MAPPED else first
        TABLE += line.to(tl.int64) * table_row
        base = tl.load(ITEM + 6)  # positions in the request instead of slots
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
    whole = n0 + (n1 - n0) // KEYS * KEYS
    for n in range(n0, whole, KEYS):
        if TMA:
            k = k_desc.load([base + n, head * D])
            v = v_desc.load([base + n, head * D])
        else:
            slot = slab_slot(TABLE, base + n + block, block >= 0, PAGE)
            at = slot.to(tl.int64) * kv_slot + head * kv_head
            k = tl.load(K + at[:, None] + dim[None, :])
            v = tl.load(V + at[:, None] + dim[None, :])
        acc, total, top = attend(q, k, v, acc, total, top, scale, block, n1, False, LAZY)
    if whole < n1:
        keys = whole + block
        there = keys < n1
        slot = slab_slot(TABLE, base + keys, there, PAGE)
        at = slot.to(tl.int64) * kv_slot + head * kv_head
        k = tl.load(K + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        v = tl.load(V + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        acc, total, top = attend(q, k, v, acc, total, top, scale, keys, n1, True, LAZY)
    to = (out + rows - row0).to(tl.int64) * heads + head
    result = (acc / total[:, None]).to(PO.dtype.element_ty)
    tl.store(PO + to[:, None] * D + dim[None, :], result, mask=live[:, None])
    tl.store(PL + to, top + tl.math.log2(total), mask=live)


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
def level0_kernel(
    Q,
    K,
    V,
    k_desc,
    v_desc,
    ORDER,
    TABLE,
    TABLE_ROWS,
    WORKERS,
    ITEMS,
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
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    TMA: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
    LAZY: tl.constexpr,
):
    """Grid (workers * heads): worker w does ITEMS[WORKERS[w] : WORKERS[w + 1]] for one head."""
    head = tl.program_id(0) % heads
    worker = tl.program_id(0) // heads
    first = tl.load(WORKERS + worker)
    last = tl.load(WORKERS + worker + 1)
    for i in range(first, last):
        slab_item(
            ITEMS + i * 8, head, Q, K, V, k_desc, v_desc, ORDER, TABLE, TABLE_ROWS, PO, PL, scale,
            q_row, q_head, kv_slot, kv_head, table_row, heads, G, D, ROWS, KEYS, TMA, PAGE, MAPPED,
            LAZY,
        )  # fmt: skip


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
