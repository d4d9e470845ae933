"""Memory of a tier for a wanted retention, and how long a given memory lasts. Pure.

Valkey drops what was not read for longest only about: it looks at a few keys and drops the oldest
of them. With K looked at, in a tier of a steady stream, a chunk that q of all others are younger
than is the next to go with density K q^(K-1); so it lives to rank q with probability 1 - q^K, and
gets there at age ∫ dx/(1 - x^K), in units of the time in which the tier is written once. A prefix
ends at its first missing chunk: the few that went too early cost everything behind them.

Valkey remembers the 16 oldest of those it looked at before, so its ten act like more. Forty is on
the safe side: simulated with 1,500 to 30,000 chunks, which is one of the tests, none goes before
.85 of that time, 0 to 2 % by .9 and 40 % by .95.
"""

import math
from dataclasses import dataclass
from typing import Final

SAMPLES: Final = 40
"""K: what ``maxmemory-samples 10``, which the operator's Valkeys have, comes to; see above."""
LOST_SHARE: Final = 0.05
"""Share of a prefix that may be lost behind holes by the end of the retention."""
_STEPS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What is written into the tier."""

    bytes_per_second: float
    """New KV a second, answers included."""
    chunks: int
    """Chunks of a prompt's prefix, ≥ 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory that a retention needs."""

    kv_bytes: float
    """What is written within the retention."""
    tier_bytes: float
    """What the tier must be able to hold so that little of it is lost behind holes."""
    lost_share: float
    """Share of a prefix that is lost behind holes at the end of the retention."""


def memory(stream: Stream, retention_seconds: float, lost: float = LOST_SHARE) -> Memory:
    """Memory for KV of that age; ``lost`` of a prefix's tokens may then be behind holes."""
    kept = stream.bytes_per_second * retention_seconds
    rank = _rank_for(stream.chunks, lost)
    return Memory(
        kv_bytes=kept,
        tier_bytes=kept / _age(rank),
        lost_share=lost_behind_holes(rank**SAMPLES, stream.chunks),
    )


def retention(stream: Stream, tier_bytes: float, lost: float = LOST_SHARE) -> float:
    """Seconds for which a tier of that size keeps prefixes whole enough; infinite when idle."""
    if stream.bytes_per_second <= 0:
        return math.inf
    return tier_bytes / stream.bytes_per_second * _age(_rank_for(stream.chunks, lost))


def lost_behind_holes(gone: float, chunks: int) -> float:
    """Share of a prefix that cannot be used when each of its chunks is gone with that probability.

    The first j chunks are all there with probability (1-p)^j; the mean prefix is their sum.
    """
    if gone <= 0:
        return 0.0
    there = 1 - gone
    if there <= 0:
        return 1.0
    return 1 - there * (1 - there**chunks) / (gone * chunks)


def _rank_for(chunks: int, lost: float) -> float:
    """The rank up to which no more than ``lost`` of a prefix is behind holes: bisected."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if lost_behind_holes(middle**SAMPLES, chunks) <= lost:
            low = middle
        else:
            high = middle
    return low


def _age(rank: float) -> float:
    """∫ dx/(1 - x^K) from 0 to ``rank``: Simpson's rule."""
    width = rank / _STEPS
    total = 0.0
    for step in range(_STEPS + 1):
        weight = 1 if step in {0, _STEPS} else 4 if step % 2 else 2
        total += weight / (1 - (step * width) ** SAMPLES)
    return total * width / 3
