"""When the whole tier is left alone, and how it is found to be back. Pure: clocks are arguments.

Without probes a bypass would be a latch: nothing is read, so nothing is measured, so nothing ever
ends it. Each rank therefore reads a few of its own chunks every interval while bypassed, at most
1 % of the bandwidth a tier worth reading has; and a bypass whose probes do not come is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvserving_sharded_store.policy import Model

PROBE_SHARE: Final = 0.01
"""Share of B* that probing may use, over all ranks together."""

PATIENCE: Final = 3
"""Intervals without a single probe after which a bypass ends by itself."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What is known of the tier.

    Attributes:
        bandwidth_upper: Upper confidence bound of B, bytes per second; none when never measured.
        busy: Share of time the engine is stepping (u).
        margin: h, the hysteresis: how far below break-even the upper bound must be, 0 to 1.
        instances: Instances there are.
        open_breakers: Instances given up at present.
    """

    bandwidth_upper: float | None
    busy: float
    instances: int
    open_breakers: int
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class Bypass:
    """Whether the tier is bypassed, since when, and when it was last probed.

    Attributes:
        active: Whether Auto recomputes everything.
        since: Second of the last change.
        probed: Second of the last probe that was sent, none in this bypass yet.
    """

    active: bool = False
    since: float = 0.0
    probed: float | None = None


def not_worth_reading(model: Model | None, tier: Tier) -> bool:
    """Whether even an optimistic B loses against recomputing, or most instances are given up.

    A prompt of any length is only worth loading while B > s·R·(1-u); the margin keeps a tier at
    the edge from flapping.
    """
    if tier.instances and 2 * tier.open_breakers > tier.instances:
        return True
    if model is None or tier.bandwidth_upper is None:
        return False
    floor = model.needed_bandwidth * (1.0 - tier.busy) * (1.0 - tier.margin)
    return tier.bandwidth_upper < floor


def step(state: Bypass, model: Model | None, tier: Tier, *, now: float, interval: float) -> Bypass:
    """The state after looking at the tier once.

    Args:
        state: The state before.
        model: The numbers; without them only the breakers count.
        tier: What is known of the tier.
        now: Monotonic seconds.
        interval: Seconds between two probes.
    """
    if not state.active:
        return Bypass(active=True, since=now) if not_worth_reading(model, tier) else state
    last = state.since if state.probed is None else state.probed
    if now - last > PATIENCE * interval:
        return Bypass(active=False, since=now)
    if not not_worth_reading(model, replace(tier, margin=0.0)):
        return Bypass(active=False, since=now)
    return state


def probed(state: Bypass, *, now: float) -> Bypass:
    """The state after a probe was sent."""
    return replace(state, probed=now) if state.active else state


def probe_chunks(model: Model, *, interval: float, chunk_bytes: int, world: int, most: int) -> int:
    """Chunks one rank reads per interval: within the share of B*, at least 1, at most ``most``.

    One chunk is the least that measures anything; where even that is more than the share of an
    interval, ``probe_interval`` says how much longer the interval has to be.
    """
    budget = PROBE_SHARE * model.needed_bandwidth * interval / world
    return max(1, min(most, int(budget // chunk_bytes)))


def probe_interval(model: Model, *, interval: float, chunk_bytes: int, world: int) -> float:
    """The interval, lengthened until one chunk a rank fits the share of B*."""
    least = chunk_bytes * world / (PROBE_SHARE * model.needed_bandwidth)
    return max(interval, least)
