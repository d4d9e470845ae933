"""Moving tokens between slots: promotion, migration, slab moves."""

import triton
import triton.language as tl


# One compiled form for every count: another would be built when a move of other size comes along,
# in the middle of serving (86 ms were seen).
@triton.jit(do_not_specialize=["count"])
def copy_slots_kernel(
    K, V, SOURCE, TARGET, count, kv_slot, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Grid (ceil(count / BLOCK), 2): K[TARGET[i]] = K[SOURCE[i]], and V in the second row.

    WIDTH is Hkv * D, a slot's contiguous elements.  No target is a source of the same call.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    source = tl.load(SOURCE + i, mask=live, other=0).to(tl.int64)
    target = tl.load(TARGET + i, mask=live, other=0).to(tl.int64)
    for first in range(0, WIDTH, 128):
        part = first + tl.arange(0, 128)
        mask = live[:, None] & (part < WIDTH)[None, :]
        source_at = source[:, None] * kv_slot + part[None, :]
        target_at = target[:, None] * kv_slot + part[None, :]
        if tl.program_id(1) == 0:
            tl.store(K + target_at, tl.load(K + source_at, mask=mask), mask=mask)
        else:
            tl.store(V + target_at, tl.load(V + source_at, mask=mask), mask=mask)
