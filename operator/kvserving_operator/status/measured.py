"""What the control loop knows of one KVServing: the input of its conditions. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kvserving_operator.api.conditions import Reason as ConditionReason
from kvserving_operator.measure import Knowledge
from kvserving_operator.tuner import Knob, Mode, Reason, State, Value


class Traffic(StrEnum):
    """What was seen of the tier's use."""

    HITS = "Hits"
    WRITES_WITHOUT_HITS = "WritesWithoutHits"
    NONE = "None"
    NOT_MEASURED = "NotMeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A decision of this pass."""

    recommended: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble:
    """Why a source of facts had none of any engine."""

    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """At the end of a look, or of the last one."""

    mode: Mode
    suspended: bool
    tier: bool
    """There is a remote tier, so that its worth is a question."""
    hot: bool
    """There are HOT pages."""
    stock: bool
    """Engines without records and without a control port."""
    state: State
    pinned: Mapping[Knob, Value]
    """What the spec says itself."""
    knowledge: Knowledge
    now: float
    """Monotonic second of ``knowledge``."""
    reason: Reason | None
    """Why the tuner did what it did; None before it looked, or where its news is too young."""
    refused: tuple[str, ...] = ()
    """Pods whose settings could not be put in force, with the reason, without numbers."""
    traffic: Traffic | None = None
    """None: nothing new."""
    news: tuple[News, ...] = ()
    """Decisions that no event has told of yet."""
    trouble: SourceTrouble | None = None
    """Why a Prometheus said nothing at the last look; None: it is up to the engines' agents."""
