"""Two readings of the engines, and what happened between them. Pure.

A difference needs two looks at one life of an engine, the second newer than the first. Counters of
the store exist once they have moved, so one that is absent beside others is at 0; without any
(``ranks_reporting`` says so) nothing is known, which is never 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kvserving_operator.measure.facts import ControlFacts, EngineFacts
from kvserving_operator.measure.hot import hot_facts
from kvserving_operator.measure.latency import median_between
from kvserving_operator.measure.stock import Look, bytes_per_token, look
from kvserving_operator.tuner import HotFacts

_REPORTING: Final = "ranks_reporting"
_DECLINED: Final = "decision_bypass_recomputecheaper"
_SPARED: Final = (
    _DECLINED,
    "decision_bypass_bypassed",
    "decision_bypass_belowmintokens",
    "decision_bypass_modeset",
)
"""What is counted of hits that were not loaded though they might have been."""
_LEAST_READ_SECONDS: Final = 0.001
"""Less time spent reading says nothing of a rate."""
_LEAST_VALUES: Final = 64
"""Values below which their mean size says nothing."""
_ROUNDED: Final = 0.5
"""Seconds by which ages may be off: the same look must not pass for a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All engines at one look."""

    at: float
    """Monotonic second at which the answers were there."""
    carriers: Mapping[str, EngineFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Engines that carry the tier, by pod; of those that answered."""
    decoders: Mapping[str, EngineFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Engines with HOT pages, likewise; the same ones where there is one role alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What happened between two readings. None: not measured."""

    age_seconds: float | None
    """Of the oldest look that is in it; of the newest where all are too old."""
    busy: float | None = None
    """u: mean over the engines; one that cannot be true is passed on as it is."""
    hit_tokens: float | None = None
    """Mean tokens of the latest loads."""
    first_token_seconds: float | None = None
    """Median of the prefill leg."""
    bytes_per_value: float | None = None
    """Mean bytes of what lies under one key of the tier."""
    tier_rate: float | None = None
    """Bytes a second that all ranks of an engine together got from the tier while they read."""
    read: float | None = None
    """Bytes that came from the tier, probes included."""
    writes: float | None = None
    """Bytes that were written to it."""
    hits: float | None = None
    """Values (of a stock engine: bytes) that came from it for requests: no probes."""
    declined: float | None = None
    """Hits that were recomputed, because that was predicted to be cheaper."""
    spared: float | None = None
    """Hits that were not loaded, whether by the model or by what is set."""
    open_breakers: float | None = None
    """Share of the tier's instances that engines have given up."""
    hot: HotFacts | None = None
    looks: Mapping[str, Look] = field(default_factory=lambda: MappingProxyType({}))
    """What stock engines did, by pod."""
    bytes_per_token: float | None = None
    """s, as stock engines have stored it; of others ``bytes_per_value`` tells it."""


def between(
    before: Reading | None, now: Reading, *, stale_after: float, copies: int = 1
) -> Interval:
    """What happened between two readings; of states, such as u, what ``now`` says.

    Engines that are hung, or whose looks are older than ``stale_after`` seconds, say nothing.
    ``copies``: ranks of a stock engine that read and write KV of their own.
    """
    usable = {pod: facts for pod, facts in now.carriers.items() if _usable(facts, stale_after)}
    earlier = {} if before is None else before.carriers
    elapsed = 0.0 if before is None else now.at - before.at
    pairs = [_Pair(earlier.get(pod), facts, elapsed) for pod, facts in sorted(usable.items())]
    states = [facts.store for facts in usable.values() if facts.store is not None]
    looks = {pair.now.pod: found for pair in pairs if (found := pair.look(copies)) is not None}
    sizes = [bytes_per_token(facts, copies) for facts in usable.values()]
    return Interval(
        age_seconds=_age(now, usable.values()),
        busy=_busy(states) if states else _mean([each.busy for each in looks.values()]),
        hit_tokens=_hit_tokens(states)
        if states
        else _known_mean(each.hit_tokens for each in looks.values()),
        first_token_seconds=_first_token(pairs),
        bytes_per_value=_bytes_per_value(states),
        tier_rate=_tier_rate(pairs),
        read=_sum(pair.moved("bytes_read", "tierReadBytes") for pair in pairs),
        writes=_sum(pair.moved("bytes_written", "tierWriteBytes") for pair in pairs),
        hits=_sum(_hits(pair) for pair in pairs),
        declined=_sum(pair.counted(_DECLINED) for pair in pairs),
        spared=_sum(pair.counted(name) for pair in pairs for name in _SPARED),
        open_breakers=_open(states),
        hot=hot_facts(
            {} if before is None else before.decoders,
            {p: f for p, f in now.decoders.items() if _hot_usable(f, stale_after)},
            newer=lambda first, last: is_newer(first, last, elapsed),
        ),
        looks=looks,
        bytes_per_token=_known_mean(sizes),
    )


def works(facts: EngineFacts) -> bool:
    """Whether an engine gets anything done, as far as that is known."""
    return facts.hung is not True and facts.up is not False


def _usable(facts: EngineFacts, stale_after: float) -> bool:
    if not works(facts):
        return False
    age = facts.store.age_seconds if facts.store is not None else facts.scrape_age_seconds
    stale = facts.store is not None and facts.store.stale is True
    return age is not None and age <= stale_after and not stale


def _hot_usable(facts: EngineFacts, stale_after: float) -> bool:
    hot = facts.hot
    if hot is None or hot.stale or not works(facts):
        return False
    return hot.age_seconds is not None and hot.age_seconds <= stale_after


def _age(now: Reading, usable: Iterable[EngineFacts]) -> float | None:
    looks = list(_ages(usable))
    if looks:
        return max(looks)
    hot = [f.hot.age_seconds for f in now.decoders.values() if f.hot and not now.carriers]
    everything = [
        *_ages(filter(works, now.carriers.values())),
        *(age for age in hot if age is not None),
    ]
    return min(everything, default=None)


def _ages(engines: Iterable[EngineFacts]) -> Iterator[float]:
    for facts in engines:
        age = facts.store.age_seconds if facts.store is not None else facts.scrape_age_seconds
        if age is not None:
            yield age


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    """Of all of them; None where one is not known: a busy one must not be left out of u."""
    return None if None in values else _known_mean(values)


class _Pair:
    """One engine at two looks."""

    def __init__(self, before: EngineFacts | None, now: EngineFacts, elapsed: float) -> None:
        self.now = now
        self._before = before
        self._elapsed = elapsed

    @property
    def same_scrape(self) -> EngineFacts | None:
        """The engine at the first look, if it is the same life and its page is an older one."""
        before, now = self._before, self.now
        if before is None or now.start_id is None or before.start_id != now.start_id:
            return None
        newer = is_newer(before.scrape_age_seconds, now.scrape_age_seconds, self._elapsed)
        return before if newer else None

    def counted(self, name: str) -> float | None:
        """By how much a counter of the store moved."""
        store = self.now.store
        before = None if self._before is None else self._before.store
        if store is None or before is None or not _same_life(before, store, self._elapsed):
            return None
        if not store.counters.get(_REPORTING) or not before.counters.get(_REPORTING):
            return None
        return _difference(before.counters.get(name, 0.0), store.counters.get(name, 0.0))

    def moved(self, name: str, stock: str) -> float | None:
        """The same, or of an engine without our store how much a number of its page moved."""
        if self.now.store is not None:
            return self.counted(name)
        return self.grown(stock)

    def grown(self, name: str) -> float | None:
        """By how much a number of the engine's page grew."""
        before, value = self.same_scrape, self.now.number(name)
        first = None if before is None else before.number(name)
        return None if first is None or value is None else _difference(first, value)

    def look(self, copies: int) -> Look | None:
        """What the engine did, if it is a stock one and its page a later one."""
        before, age = self.same_scrape, self.now.scrape_age_seconds
        if before is None or before.scrape_age_seconds is None or age is None:
            return None
        elapsed = self._elapsed + before.scrape_age_seconds - age
        return look(self.now, self.grown, elapsed=elapsed, copies=copies)


def is_newer(before: float | None, now: float | None, elapsed: float) -> bool:
    """Whether a look of age ``now`` is a later one than the look that had age ``before`` then."""
    if before is None or now is None:
        return False
    return now < before + elapsed - _ROUNDED


def _same_life(before: ControlFacts, now: ControlFacts, elapsed: float) -> bool:
    if now.start_id is None or before.start_id != now.start_id:
        return False
    return is_newer(before.age_seconds, now.age_seconds, elapsed)


def _difference(before: float, now: float) -> float | None:
    """What came in between; None for a counter that went back."""
    return now - before if now >= before else None


def _busy(states: Iterable[ControlFacts]) -> float | None:
    shares = [s.counters["busy_share"] for s in states if "busy_share" in s.counters]
    if not shares:
        return None
    return max(shares) if max(shares) > 1 else sum(shares) / len(shares)


def _hit_tokens(states: Iterable[ControlFacts]) -> float | None:
    tokens = [load.tokens for s in states if s.recent is not None for load in s.recent.loads]
    return sum(tokens) / len(tokens) if tokens else None


def _first_token(pairs: Iterable[_Pair]) -> float | None:
    """Of prefill pods the whole request, which is one token; of others the first token."""
    rows = []
    for pair in pairs:
        name = "request" if pair.now.role == "prefill" else "firstToken"
        before = pair.same_scrape
        if before is not None:
            rows.append((before.latencies.get(name), pair.now.latencies.get(name)))
    return median_between(rows)


def _bytes_per_value(states: Iterable[ControlFacts]) -> float | None:
    """Over all that was ever read and written: the few markers of a start do not count then."""
    counted = [s.counters for s in states if s.counters.get(_REPORTING)]
    size = sum(c.get("bytes_read", 0.0) + c.get("bytes_written", 0.0) for c in counted)
    values = sum(c.get("get_done", 0.0) + c.get("set_done", 0.0) for c in counted)
    return size / values if values >= _LEAST_VALUES and size > 0 else None


def _tier_rate(pairs: Iterable[_Pair]) -> float | None:
    """Bytes by the time that a rank was reading, times the ranks."""
    size = seconds = 0.0
    for pair in pairs:
        read, busy = pair.counted("bytes_read"), pair.counted("fetch_busy_seconds")
        ranks = pair.now.store.counters.get(_REPORTING) if pair.now.store is not None else None
        if read and busy and ranks:
            size += read
            seconds += busy / ranks
    return size / seconds if seconds > _LEAST_READ_SECONDS else None


def _hits(pair: _Pair) -> float | None:
    if pair.now.store is None:
        return pair.moved("", "tierReadBytes")
    came, probes = pair.counted("get_done"), pair.counted("probed_chunks")
    return None if came is None or probes is None else max(0.0, came - probes)


def _open(states: Iterable[ControlFacts]) -> float | None:
    known = [
        (s.counters["open_breakers"], s.counters["instances"])
        for s in states
        if "open_breakers" in s.counters and s.counters.get("instances")
    ]
    total = sum(instances for _, instances in known)
    return sum(opened for opened, _ in known) / total if total else None
