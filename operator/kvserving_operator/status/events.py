"""Kubernetes Events as values, derived from the transition between two written statuses. Pure.

An event says what a condition began to say. Its reason is the condition's reason; it is emitted
only after the status that it speaks about has been stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    find,
)
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.status.measured import Measured
from kvserving_operator.status.writing import FAILURES

_NEWS = frozenset({Reason.CREATING, Reason.ROLLING_OUT, Reason.ROLLOUT_PAUSED, Reason.SUSPENDED})
# Part of every start, restart and scale-up: nobody need look.
_ROUTINE = frozenset({Reason.STARTING, Reason.CREATING, Reason.DRAINING, Reason.SCALED_TO_ZERO})
# The specific before the summary: of two conditions with one reason the first makes the event.
_ORDER = (
    ConditionType.SPEC_VALID,
    ConditionType.REMOTE_TIER_READY,
    ConditionType.PREFILL_READY,
    ConditionType.DECODE_READY,
    ConditionType.ROUTER_READY,
    ConditionType.READY,
    ConditionType.REMOTE_HITS_OBSERVED,
    ConditionType.TIER_WORTH_READING,
    ConditionType.TUNING_ACTIVE,
    ConditionType.PROGRESSING,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event about the KVServing."""

    type: Literal["Normal", "Warning"]
    reason: Reason
    message: str


def events_between(before: KVServingStatus, after: KVServingStatus) -> tuple[Event, ...]:
    """What there is to tell about the change, at most one event a reason."""
    found: dict[Reason, Event] = {}
    for event in _events(before, after):
        found.setdefault(event.reason, event)
    return tuple(found.values())


def decisions(measured: Measured | None) -> tuple[Event, ...]:
    """What the tuner decided since the last status that was written."""
    if measured is None:
        return ()
    return tuple(
        Event(
            type="Normal",
            reason=Reason.TUNING_RECOMMENDED if news.recommended else Reason.TUNED,
            message=news.message,
        )
        for news in measured.news
    )


def _events(before: KVServingStatus, after: KVServingStatus) -> Iterator[Event]:
    for type_ in _ORDER:
        old, new = find(before.conditions, type_), find(after.conditions, type_)
        if new is None or (
            old is not None and (old.status, old.reason) == (new.status, new.reason)
        ):
            continue
        kind = _kind(old, new)
        if kind is not None:
            yield Event(type=kind, reason=Reason(new.reason), message=f"{new.type}: {new.message}")


def _kind(old: Condition | None, new: Condition) -> Literal["Normal", "Warning"] | None:
    if new.type == ConditionType.PROGRESSING:
        return "Normal" if new.reason in _NEWS else None
    if new.status is ConditionStatus.TRUE and new.reason not in FAILURES:
        return "Normal" if new.type == ConditionType.READY else None
    if new.type == ConditionType.SPEC_VALID or new.reason in FAILURES:
        return "Warning"
    lost = old is not None and old.status is ConditionStatus.TRUE
    if not lost or new.reason == Reason.ROLLING_OUT:
        return None
    return "Normal" if new.reason in _ROUTINE else "Warning"
