"""What one engine said of itself, checked and bounded, independent of who read it. Pure.

Missing is not zero: what was not said, or cannot be true, is None or absent. Every number has the
age of the look that it is from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kvserving_operator.fit import Recent

NUMBERS: Final = (
    "running",
    "waiting",
    "kvCacheUsage",
    "promptTokens",
    "promptTokensCached",
    "generationTokens",
    "requestsFinished",
    "preemptions",
    "prefixCacheQueries",
    "prefixCacheHits",
    "externalPrefixCacheQueries",
    "externalPrefixCacheHits",
    "nixlTransfers",
    "nixlBytes",
    "nixlTransferSeconds",
    "nixlFailedTransfers",
    "nixlFailedNotifications",
    "nixlExpiredRequests",
    "nixlLateNotifications",
    "tierReadBytes",
    "tierWriteBytes",
    "prefills",
    "prefillSeconds",
    "queueSeconds",
    "computedTokens",
    "tierReads",
    "tierReadMs",
    "lookups",
    "lookupSeconds",
    "retrieves",
    "retrievedTokens",
    "retrieveSeconds",
    "storedTokens",
)
"""Numbers by the agent's names (kvserving_agent/series.py). Counters since the engine started, but
for running, waiting and kvCacheUsage (0 to 1), which are of now."""

LATENCIES: Final = ("firstToken", "request", "interToken")
"""Latencies by the agent's names: time to first token, whole request, time between tokens."""

Bucket = tuple[float, float | None, int]
"""Lower bound, upper bound (None without one) in seconds, and observations since the start."""

ModelNumbers = tuple[float, float, float, float, float]
"""The cost model as engines have it: (R, s, B, Te, Tw)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aged:
    """A number with the age of the look that it is from."""

    value: float
    """Finite, ≥ 0."""
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Observations of one latency since the engine started."""

    count: int
    seconds: float | None
    """Of all observations together."""
    buckets: tuple[Bucket, ...]
    """Rising and apart, without empty ones."""
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """What is in force behind a control port; None: not said, or not its own."""

    mode: str | None = None
    min_tokens: int | None = None
    model: ModelNumbers | None = None
    hot_percent: int | None = None
    hot_percent_wanted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFacts:
    """A control port in the engine: the sharded store's, or GraniKV's."""

    start_id: str | None = None
    """Names this start of it; None: it has not answered."""
    closed: str | None = None
    """Why nothing is loaded and nothing stored; None while open. A word, or anything."""
    settings: ControlSettings | None = None
    since: float | None = None
    """Unix second from which on they are in force, by the engine's clock."""
    counters: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By the engine's names, all finite and ≥ 0."""
    recent: Recent | None = None
    """The latest loads and steps; None where there are none."""
    age_seconds: float | None = None
    """Of all that; None without an answer, or where the age cannot be true."""
    stale: bool | None = None
    """The source itself would not go by it any more."""
    last_error: str | None = None
    """Why the last look failed; None after a good one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """One engine at one look."""

    pod: str
    role: str | None = None
    """prefill or decode."""
    start_id: str | None = None
    """Names this life of the engine process; None while it does not listen."""
    up: bool | None = None
    """Healthy; None: not known at present."""
    hung: bool | None = None
    """Healthy, but there is work and nothing gets done; None: cannot be told."""
    lives: int | None = None
    """Of its agent since the agent's container started, this one included; None: not said."""
    version: str | None = None
    capabilities: frozenset[str] = frozenset()
    numbers: Mapping[str, Aged] = field(default_factory=lambda: MappingProxyType({}))
    """By the names of ``NUMBERS``; a name that is absent was not measured."""
    latencies: Mapping[str, Latency] = field(default_factory=lambda: MappingProxyType({}))
    """By the names of ``LATENCIES``; likewise."""
    scrape_age_seconds: float | None = None
    """Of the page that numbers and latencies are from."""
    store: ControlFacts | None = None
    """The sharded store; None: the engine is not told to carry one."""
    hot: ControlFacts | None = None
    """GraniKV; None: likewise."""

    def number(self, name: str) -> float | None:
        """The value of a number; None: not measured."""
        found = self.numbers.get(name)
        return None if found is None else found.value
