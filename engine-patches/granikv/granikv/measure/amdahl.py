"""The paper's Amdahl terms for one load: predicted against measured.

A stock decode step is a rest and the attention to the shared prefix; GraniKV replaces the second.
alpha is its share of the stock step, s how much faster ours is, S = 1 / (1 - alpha + alpha / s).
The rest is taken from the stock arm's shortest load, less what the cost table says that its prefix
costs a paged pass; s is the stock arm's measured prefix attention over ours in the cost table.
What measurement leaves of 1/S (host gaps, merging, scheduling) is `residual`; the paper measures a
part of it, gamma, with a profiler, which is not done here.
"""

from collections.abc import Sequence

from granikv.dispatch import PAGED_WAYS, CostTable, Way


def prefix_us(table: CostTable, ways: Sequence[Way], members: int, length: int) -> float:
    """What a prefix adds to one layer's step, over the shortest one of the table."""
    whole = table.best(ways, members, length)[0]
    return max(1e-3, whole - table.best(ways, members, table.lengths[0])[0])


def terms(
    table: CostTable, layers: int, members: int, *, length: int, stock_ms: float,
    short_length: int, short_ms: float, our_ms: float,
) -> dict[str, float]:  # fmt: skip
    """alpha, s, predicted, measured and residual; times are milliseconds between two tokens."""
    short = layers * prefix_us(table, PAGED_WAYS, members, short_length) / 1e3
    rest = max(0.0, short_ms - short)
    alpha = min(1.0, max(0.0, 1.0 - rest / stock_ms))
    ours = layers * prefix_us(table, [Way.CASCADE_FUSED], members, length) / 1e3
    s = max(1e-3, alpha * stock_ms / ours)
    kept = 1.0 - alpha + alpha / s
    return {
        "alpha": round(alpha, 3), "s": round(s, 2), "predicted": round(1.0 / kept, 3),
        "measured": round(stock_ms / our_ms, 3), "residual": round(our_ms / stock_ms - kept, 3),
    }  # fmt: skip
