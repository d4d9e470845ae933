"""What is known of one KVServing's engines and tier from all readings so far. Pure.

A value that grows with each reading: the fit of the cost model, and the few numbers that have no
record of their own. It is kept in memory; what a new operator begins with is in the status.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from kvserving_operator.fit import (
    EngineRecords,
    Fit,
    Known,
    Number,
    Numbers,
    Source,
    estimate,
    observe,
)
from kvserving_operator.fit.window import Window
from kvserving_operator.measure.facts import EngineFacts
from kvserving_operator.measure.interval import Interval, works
from kvserving_operator.tuner import Facts

_RATES: Final = 3
"""Intervals whose bandwidth counts where no load shows it: a change is seen in one of them."""
_SHARES: Final = 10
"""Intervals over which u is averaged for people; decisions take the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """All that readings have shown."""

    fit: Fit = field(default_factory=lambda: Fit(revision=""))
    last_good: Numbers = field(default_factory=Numbers)
    """From before this process, by the status."""
    bytes_per_token: float | None = None
    """s: what a token's KV takes in the tier, over all ranks."""
    hit_tokens: float | None = None
    rates: tuple[float, ...] = ()
    """Bytes a second from the tier in the latest intervals without a load."""
    shares: tuple[float, ...] = ()
    """u of the latest intervals."""

    def known(self, now: float) -> Known:
        """The cost model's numbers at a monotonic second; B by probes where no load shows it."""
        found = estimate(self.fit, now=now, last_good=self.last_good)
        probed = self.probed()
        return found if probed is None else replace(found, bandwidth=probed)

    def probed(self) -> Number | None:
        """B as the latest intervals without a load show it."""
        if not self.rates:
            return None
        return Number(
            value=median(self.rates),
            low=min(self.rates),
            high=max(self.rates),
            samples=len(self.rates),
            age_seconds=0.0,
            source=Source.MEASURED,
        )

    @property
    def busy(self) -> float | None:
        """U over the last readings, for people."""
        return sum(self.shares) / len(self.shares) if self.shares else None

    def without_bandwidth(self) -> "Knowledge":
        """As if the tier had never been read: what it was says nothing of what it is."""
        return replace(
            self,
            fit=replace(self.fit, bandwidth=Window()),
            last_good=replace(self.last_good, bandwidth=None),
            rates=(),
        )


def learn(
    before: Knowledge,
    interval: Interval,
    engines: Iterable[EngineFacts],
    *,
    revision: str,
    now: float,
    tokens_per_value: float,
) -> Knowledge:
    """``before`` with one more reading.

    Args:
        before: What was known.
        interval: What happened since the reading before.
        engines: Engines of the revision whose records count.
        revision: That revision; another one begins the fit anew.
        now: Monotonic second.
        tokens_per_value: Tokens of KV under one key of the tier: a chunk, or a rank's part of it.
    """
    records = [
        EngineRecords(start_id=facts.store.start_id, recent=facts.store.recent)
        for facts in engines
        if works(facts)
        and facts.store is not None
        and facts.store.start_id
        and facts.store.recent is not None
    ]
    fit = observe(before.fit, records, revision=revision, now=now)
    loaded = fit.bandwidth.newest == now
    size, busy = interval.bytes_per_value, interval.busy
    shares = before.shares if busy is None or busy > 1 else (*before.shares, busy)[-_SHARES:]
    return replace(
        before,
        fit=fit,
        bytes_per_token=before.bytes_per_token if size is None else size / tokens_per_value,
        hit_tokens=before.hit_tokens if interval.hit_tokens is None else interval.hit_tokens,
        rates=() if loaded else _rates(before.rates, interval.tier_rate),
        shares=shares,
    )


def _rates(before: tuple[float, ...], rate: float | None) -> tuple[float, ...]:
    return before if rate is None else (*before, rate)[-_RATES:]


def tuner_facts(knowledge: Knowledge, interval: Interval, *, at: float, now: float) -> Facts | None:
    """What a decision rests on; None where no engine said anything.

    ``at`` is the wall-clock second, ``now`` the monotonic one.
    """
    if interval.age_seconds is None:
        return None
    known = knowledge.known(now)
    return Facts(
        at=at,
        age_seconds=interval.age_seconds,
        known=known,
        bytes_per_token=knowledge.bytes_per_token,
        busy=interval.busy,
        hit_tokens=knowledge.hit_tokens,
        first_token_seconds=interval.first_token_seconds,
        bandwidth=known.bandwidth,
        probed=bool(interval.read),
        open_breakers=interval.open_breakers,
        declined=bool(interval.declined),
        hot=interval.hot,
    )
