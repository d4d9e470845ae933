"""Level 0: every HOT class of a step against its slab, in pieces of keys.

`level0_kernel`  a plan's items by its workers; contiguous slabs, or pages to measure them against
"""

import triton
import triton.language as tl

from granikv.kernels.attention import attend


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
        acc, total, top = attend(q, k, v, acc, total, top, scale, block, n1, False)
    if whole < n1:
        keys = whole + block
        there = keys < n1
        slot = slab_slot(TABLE, base + keys, there, PAGE)
        at = slot.to(tl.int64) * kv_slot + head * kv_head
        k = tl.load(K + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        v = tl.load(V + at[:, None] + dim[None, :], mask=there[:, None], other=0.0)
        acc, total, top = attend(q, k, v, acc, total, top, scale, keys, n1, True)
    to = (out + rows - row0).to(tl.int64) * heads + head
    result = (acc / total[:, None]).to(PO.dtype.element_ty)
    tl.store(PO + to[:, None] * D + dim[None, :], result, mask=live[:, None])
    tl.store(PL + to, top + tl.math.log2(total), mask=live)


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
        )  # fmt: skip
