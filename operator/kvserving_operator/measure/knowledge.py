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
"""Intervals over which u is averaged for people (decisions take the present one), and bytes."""


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
    blocking: bool = False
    """The engines load synchronously: all of a load holds the engine, and Tw too."""
    brought: tuple[float, ...] = ()
    """Of stock engines: mean bytes of a load from the tier in the latest intervals with loads."""

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

    @property
    def hit_bytes(self) -> float | None:
        """Bytes that a mean load brings from the tier; memory has the rest."""
        return sum(self.brought) / len(self.brought) if self.brought else None

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

    Engines without our store load synchronously, and have their mean loads and steps in
    ``interval.looks``.

    Args:
        before: What was known.
        interval: What happened since the reading before.
        engines: Engines of the revision whose records count.
        revision: That revision; another one begins the fit anew.
        now: Monotonic second.
        tokens_per_value: Tokens of KV under one key of the tier: a chunk, or a rank's part of it.
    """
    known = [facts for facts in engines if works(facts)]
    records = [
        EngineRecords(start_id=facts.store.start_id, recent=facts.store.recent)
        for facts in known
        if facts.store is not None and facts.store.start_id and facts.store.recent is not None
    ]
    looks = [found for facts in known if (found := interval.looks.get(facts.pod)) is not None]
    records += [EngineRecords(start_id=look.start_id, recent=look.recent) for look in looks]
    fit = observe(before.fit, records, revision=revision, now=now)
    loaded = fit.bandwidth.newest == now
    size = interval.bytes_per_token
    brought = [each.hit_bytes for each in looks if each.hit_bytes is not None]
    if interval.bytes_per_value is not None:
        size = interval.bytes_per_value / tokens_per_value
    after = replace(
        before,
        fit=fit,
        bytes_per_token=before.bytes_per_token if size is None else size,
        hit_tokens=before.hit_tokens if interval.hit_tokens is None else interval.hit_tokens,
        rates=() if loaded else _rates(before.rates, interval.tier_rate),
        blocking=all(facts.store is None for facts in known) if known else before.blocking,
        brought=(*before.brought, *brought)[-_SHARES:],
    )
    busy = busy_share(after, interval, now)
    shares = before.shares if busy is None or busy > 1 else (*before.shares, busy)[-_SHARES:]
    return replace(after, shares=shares)


def busy_share(knowledge: Knowledge, interval: Interval, now: float) -> float | None:
    """U of the interval; of stock engines whose prompts share steps by what they did and R.

    A step holds its engine for what it computes, and synchronous loads hold it as well: what was
    done over the time there was is u, however prompts were put together.
    """
    if interval.busy is not None or not interval.looks:
        return interval.busy
    rate, shares = knowledge.known(now).tokens_per_second, []
    for look in interval.looks.values():
        share = look.busy
        if share is None and look.work is not None and rate is not None:
            held = look.work.computed_tokens / rate.value + look.work.loading_seconds
            share = min(1.0, held / look.work.elapsed_seconds)
        if share is None:
            return None
        shares.append(share)
    return sum(shares) / len(shares)


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
        busy=busy_share(knowledge, interval, now),
        hit_tokens=knowledge.hit_tokens,
        hit_bytes=knowledge.hit_bytes,
        first_token_seconds=interval.first_token_seconds,
        bandwidth=known.bandwidth,
        probed=bool(interval.read),
        open_breakers=interval.open_breakers,
        declined=bool(interval.declined),
        hot=interval.hot,
    )
