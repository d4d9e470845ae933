"""Putting partials together, and bringing other libraries' partials into our layout.

`suffix_merge_kernel`  a request's open tail and the merge with its partials, in one pass
`merge_kernel`         the merge alone
`adopt_kernel`         a strided output and LSE of another library -> our rows, LSE to base 2
`softmax_lse_kernel`   row softmax of a score matrix, for the dense path
"""

import triton
import triton.language as tl

from granikv.kernels.attention import table_range


@triton.jit
def add_partial(acc, total, top, out, lse):
    """Fold one normalised partial in; -inf is the identity as long as `top` is finite."""
    new_top = tl.maximum(top, lse)
    fade = tl.math.exp2(top - new_top)
    weight = tl.math.exp2(lse - new_top)
    acc = acc * fade[:, None] + weight[:, None] * out.to(tl.float32)
    return acc, total * fade + weight, new_top


@triton.jit
def load_part(
    request,
    head,
    j,
    PO,
    PL,
    PARTS,
    count,
    parts_row,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """LSE [R] and output [R, D] of a request's j-th partial; -inf and zeros where there is none."""
    g = tl.arange(0, R)
    dim = tl.arange(0, D)
    row = tl.load(PARTS + request * parts_row + j, mask=j < count, other=0)
    at = (row + g).to(tl.int64) * heads + head
    lse = tl.load(PL + at, mask=(g < G) & (j < count), other=float("-inf"))
    there = lse > float("-inf")
    out = tl.load(PO + at[:, None] * D + dim[None, :], mask=there[:, None], other=0.0)
    return lse, out


@triton.jit
def store_result(
    request,
    head,
    g,
    acc,
    total,
    top,
    O,
    LSE,
    o_row,
    o_head,
    lse_row,
    G: tl.constexpr,
    D: tl.constexpr,
):
    """Query heads `g` of one KV head; a request without any key gets zeros and -inf."""
    dim = tl.arange(0, D)
    some = total > 0.0
    divisor = tl.where(some, total, 1.0)
    at = request.to(tl.int64) * o_row + (head * G + g) * o_head
    result = tl.where(some[:, None], acc / divisor[:, None], 0.0).to(O.dtype.element_ty)
    tl.store(O + at[:, None] + dim[None, :], result, mask=(g < G)[:, None])
    lse = tl.where(some, top + tl.math.log2(divisor), float("-inf"))
    tl.store(LSE + request * lse_row + head * G + g, lse, mask=g < G)


@triton.jit
def suffix_merge_kernel(
    Q,
    K,
    V,
    TABLE,
    ROWS,
    LENGTHS,
    TAILS,
    PO,
    PL,
    PARTS,
    COUNT,
    O,
    LSE,
    scale,
    q_row,
    q_head,
    kv_slot,
    kv_head,
    table_row,
    parts_row,
    o_row,
    o_head,
    lse_row,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    KEYS: tl.constexpr,
    PAGE: tl.constexpr,
    MAPPED: tl.constexpr,
):
    """Grid (heads, B): positions [TAILS[b], LENGTHS[b]) and COUNT[b] partials -> O[b], LSE[b]."""
    head = tl.program_id(0)
    request = tl.program_id(1)
    n0 = tl.load(TAILS + request)
    n1 = tl.load(LENGTHS + request).to(tl.int32)
    count = tl.load(COUNT + request)
    acc, total, top = table_range(
        request, n0, n1, head, Q, K, V, TABLE, ROWS, scale,
        q_row, q_head, kv_slot, kv_head, table_row, G, D, KEYS, PAGE, MAPPED,
    )  # fmt: skip
    for j in range(count):  # asking for the first ones before the keys was measured 1.5 % slower
        lse, out = load_part(request, head, j, PO, PL, PARTS, count, parts_row, heads, G, D, 16)
        acc, total, top = add_partial(acc, total, top, out, lse)
    g = tl.arange(0, 16)
    store_result(request, head, g, acc, total, top, O, LSE, o_row, o_head, lse_row, G, D)


@triton.jit
def merge_kernel(
    PO,
    PL,
    PARTS,
    COUNT,
    O,
    LSE,
    parts_row,
    o_row,
    o_head,
    lse_row,
    heads,
    G: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
    SINGLE: tl.constexpr,
):
    """Grid (heads, B): COUNT[b] + 1 partials (the tail is the last) -> O[b], LSE[b].

    BLOCK partials are read at once: a request alone on the GPU has 66 of them or more, and one
    after the other they took longer than everything else (82 us a step, 20 now).  SINGLE: grid
    (heads * G, B), R = 1, one query head a program.
    """
    head = tl.program_id(0) // G if SINGLE else tl.program_id(0)
    request = tl.program_id(1)
    g = tl.arange(0, R) + (tl.program_id(0) % G if SINGLE else 0)
    dim = tl.arange(0, D)
    nth = tl.arange(0, BLOCK)
    count = tl.load(COUNT + request) + 1
    top = tl.full([R], -1e30, tl.float32)
    total = tl.zeros([R], tl.float32)
    acc = tl.zeros([R, D], tl.float32)
    for first in range(0, count, BLOCK):
        live = first + nth < count
        row = tl.load(PARTS + request * parts_row + first + nth, mask=live, other=0)
        at = (row[:, None] + g[None, :]).to(tl.int64) * heads + head
        mask = live[:, None] & (g < G)[None, :]
        lse = tl.load(PL + at, mask=mask, other=float("-inf"))
        there = lse > float("-inf")
        out = tl.load(
            PO + at[:, :, None] * D + dim[None, None, :], mask=there[:, :, None], other=0.0
        )
        new_top = tl.maximum(top, tl.max(lse, 0))
        weight = tl.math.exp2(lse - new_top[None, :])
        fade = tl.math.exp2(top - new_top)
        acc = acc * fade[:, None] + tl.sum(weight[:, :, None] * out.to(tl.float32), 0)
        total = total * fade + tl.sum(weight, 0)
        top = new_top
    store_result(request, head, g, acc, total, top, O, LSE, o_row, o_head, lse_row, G, D)


@triton.jit
def adopt_kernel(
    X,
    XL,
    PO,
    PL,
    first_row,
    lse_scale,
    members,
    x_split,
    x_row,
    x_head,
    xl_split,
    xl_row,
    xl_head,
    heads,
    split_rows,
    G: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """Grid (members, heads, splits): X[split, row, head, :] of G heads a KV head -> our rows."""
    member = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    g = tl.arange(0, R)
    dim = tl.arange(0, D)
    live = (g < G) & (member < members)
    at = split.to(tl.int64) * x_split + member * x_row + (head * G + g) * x_head
    x = tl.load(X + at[:, None] + dim[None, :], mask=live[:, None], other=0.0)
    lse_at = split.to(tl.int64) * xl_split + member * xl_row + (head * G + g) * xl_head
    lse = tl.load(XL + lse_at, mask=live, other=float("-inf")) * lse_scale
    to = (first_row + split * split_rows + member * G + g).to(tl.int64) * heads + head
    tl.store(PO + to[:, None] * D + dim[None, :], x.to(PO.dtype.element_ty), mask=live[:, None])
    tl.store(PL + to, lse, mask=live)


@triton.jit
def softmax_lse_kernel(S, LSE, columns, scale, BLOCK: tl.constexpr):
    """Grid (rows): softmax of S[row, :columns] in place, LSE to base 2 of the scaled scores."""
    row = tl.program_id(0)
    n = tl.arange(0, BLOCK)
    at = S + row.to(tl.int64) * columns + n
    score = tl.load(at, mask=n < columns, other=float("-inf")).to(tl.float32) * scale
    top = tl.max(score, 0)
    weight = tl.math.exp2(score - top)
    total = tl.sum(weight, 0)
    tl.store(at, (weight / total).to(S.dtype.element_ty), mask=n < columns)
    tl.store(LSE + row, top + tl.math.log2(total))
