"""Knobs, what is set for them, and what the tuner remembers. Pure; all of it is plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

HISTORY: Final = 20
"""Decisions that are remembered."""


class Knob(StrEnum):
    """What can be turned, in the order in which it is looked at."""

    LOADING = "Loading"
    MODEL = "Model"
    MIN_TOKENS = "MinTokens"
    HOT_PERCENT = "HotPercent"


class Loading(StrEnum):
    """How hits are loaded."""

    AUTO = "Auto"
    ASYNC = "Async"
    SYNC = "Sync"
    BYPASS = "Bypass"


class Mode(StrEnum):
    """``tuning.mode`` of the spec."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    APPLY = "Apply"


class Reason(StrEnum):
    """Why something is changed, or nothing is."""

    STEADY = "Steady"
    TURNED_OFF = "TurnedOff"
    FACTS_STALE = "FactsStale"
    FACTS_MISSING = "FactsMissing"
    FACTS_IMPLAUSIBLE = "FactsImplausible"
    VERIFYING = "Verifying"
    DWELLING = "Dwelling"
    PINNED = "Pinned"
    TIER_TOO_SLOW = "TierTooSlow"
    TIER_MOSTLY_DOWN = "TierMostlyDown"
    TIER_BACK = "TierBack"
    NO_PROBE = "NoProbe"
    MODEL_MOVED = "ModelMoved"
    BREAK_EVEN_MOVED = "BreakEvenMoved"
    HOT_TOO_SMALL = "HotTooSmall"
    HOT_UNUSED = "HotUnused"
    COLD_SHORT = "ColdShort"
    WORSE = "WorseThanBefore"


class Verdict(StrEnum):
    """What became of a change."""

    APPLIED = "Applied"
    """Not known yet."""
    RECOMMENDED = "Recommended"
    CONFIRMED = "Confirmed"
    UNCLEAR = "Unclear"
    """Load or measurements were too different from before; it stays."""
    ROLLED_BACK = "RolledBack"


Value = str | float | tuple[float, float, float, float, float]
"""Of a knob: a Loading, a number, or the model as (R, s, B, Te, Tw)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is asked of the tuner, from the spec and the engines' capabilities."""

    mode: Mode
    interval_seconds: float = 60.0
    """Between two decisions."""
    stock: bool = False
    """Engines without a decision per request: minTokens is their knob, and needs a restart."""
    pinned: Mapping[Knob, Value] = field(default_factory=lambda: MappingProxyType({}))
    """What the spec says itself; it wins."""
    hot: bool = False
    """hot.mode is Auto."""
    hot_least: float = 5.0
    hot_most: float = 80.0
    chunk_tokens: int = 256
    longest_tokens: int = 1 << 20
    """maxModelLen: a threshold beyond it loads nothing."""
    dwell_intervals: int = 3
    """A knob that was turned stays for so long, and is then judged."""
    restart_dwell_seconds: float = 3600.0
    """The same for a knob whose change restarts engines."""

    @property
    def dwell_seconds(self) -> float:
        """``dwell_intervals`` as seconds."""
        return self.dwell_intervals * self.interval_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One decision in the history."""

    at: float
    """Wall-clock second."""
    knob: Knob
    before: Value | None
    after: Value
    reason: Reason
    numbers: Mapping[str, float]
    """What it rests on."""
    predicted: float
    """Relative gain that was predicted; 0 for none."""
    observed: float | None = None
    """Relative gain that was measured after it."""
    verdict: Verdict = Verdict.APPLIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The change that is being judged."""

    knob: Knob
    since: float
    before: Value | None
    cost: float | None
    """Of the time before it: see ``verifying.cost``."""
    busy: float | None
    """u then: a cost is only compared at a like load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that is remembered: as data it lies in the status, so a new operator goes on with it."""

    in_force: Mapping[Knob, Value] = field(default_factory=dict)
    turned: Mapping[Knob, float] = field(default_factory=dict)
    """When a knob was turned last, in wall-clock seconds."""
    recommended: Mapping[Knob, Value] = field(default_factory=dict)
    asked: Mapping[Knob, int] = field(default_factory=dict)
    """How many times in a row a knob's own measurements asked for a change."""
    failures: Mapping[Knob, int] = field(default_factory=dict)
    """Changes in a row that were taken back: each doubles the dwell."""
    decided: Mapping[Knob, tuple[float, float]] = field(default_factory=dict)
    """Of knobs that engines restart for: what was decided last, and when."""
    probed: float | None = None
    """When a bypassed tier last showed its bandwidth."""
    trial: Trial | None = None
    history: tuple[Entry, ...] = ()
    """Oldest first, at most ``HISTORY``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be done now."""

    knob: Knob
    value: Value
    restarts: bool
    """Whether engines have to be replaced for it."""
    reason: Reason
    message: str
    """One sentence with the numbers, for status and event."""
