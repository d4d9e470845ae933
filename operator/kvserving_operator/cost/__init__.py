"""The cost model of a remote KV tier: is a hit loaded or recomputed, and does the tier pay? Pure.

Every number is a float in tokens, bytes and seconds. ``docs/tuning.md`` explains the letters.
"""

from kvserving_operator.cost.model import (
    BUSIEST,
    IDLE,
    Load,
    Model,
    break_even_tokens,
    floor_bandwidth,
    load_seconds,
    prefers_load,
    recompute_seconds,
    tier_utilization,
    tier_wait_seconds,
    total_seconds,
)
from kvserving_operator.cost.pool import ONE, Pool, Routing, stretch
from kvserving_operator.cost.worth import (
    MARGIN,
    Gain,
    Operation,
    Pays,
    PaysIn,
    Verdict,
    blocking_gain,
    gain,
    verdict,
)

__all__ = [
    "BUSIEST",
    "IDLE",
    "MARGIN",
    "ONE",
    "Gain",
    "Load",
    "Model",
    "Operation",
    "Pays",
    "PaysIn",
    "Pool",
    "Routing",
    "Verdict",
    "blocking_gain",
    "break_even_tokens",
    "floor_bandwidth",
    "gain",
    "load_seconds",
    "prefers_load",
    "recompute_seconds",
    "stretch",
    "tier_utilization",
    "tier_wait_seconds",
    "total_seconds",
    "verdict",
]
