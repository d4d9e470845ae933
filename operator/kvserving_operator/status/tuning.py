"""What the control loop found, as conditions and as ``status.tuning``. Pure.

Messages hold no number that is not published in ``status.model``, so they move with it alone.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
    find,
    timestamp,
)
from kvserving_operator.api.v1alpha1 import (
    CostModelStatus,
    KVServingStatus,
    TuningChange,
    TuningStatus,
)
from kvserving_operator.status.measured import Measured, Traffic
from kvserving_operator.tuner import (
    Entry,
    Knob,
    Mode,
    State,
    Verdict,
    shown,
    to_text,
)
from kvserving_operator.tuner import Reason as Why

_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
MEASURED_CONDITIONS: Final = frozenset(
    {
        ConditionType.REMOTE_HITS_OBSERVED,
        ConditionType.TIER_WORTH_READING,
        ConditionType.TUNING_ACTIVE,
    }
)
"""What ``measured_conditions`` decides."""
_HISTORY: Final = 20
_LONGEST_REASON: Final = 400
_CAUSES: Final = (
    "the engines write to the tier and read nothing back. Likely, in this order: their keys differ "
    "(hash algorithm, PYTHONHASHSEED), each start has another tier epoch, chunks are longer than "
    "what prompts share (kvCache.chunkTokens), or what is written is evicted before it is asked "
    "for (kvCache.remote.memoryPerInstance)"
)


def measured_conditions(
    measured: Measured, model: CostModelStatus | None, previous: KVServingStatus
) -> Iterator[Condition]:
    """The conditions that rest on measurements; none for what is off."""
    if measured.tier:
        yield _hits(measured, previous)
        yield _worth(model)
    if measured.mode is not Mode.OFF:
        yield _active(measured, previous)


def _hits(measured: Measured, previous: KVServingStatus) -> Condition:
    type_ = ConditionType.REMOTE_HITS_OBSERVED
    match measured.traffic:
        case Traffic.HITS:
            message = "engines find KV in the tier"
            return condition(type_, status=_TRUE, reason=Reason.HITS_OBSERVED, message=message)
        case Traffic.WRITES_WITHOUT_HITS:
            why = Reason.WRITES_WITHOUT_HITS
            return condition(type_, status=_FALSE, reason=why, message=_CAUSES)
        case _:
            return _no_news(measured.traffic, find(previous.conditions, type_))


_SEEN: Final = frozenset({Reason.HITS_OBSERVED, Reason.WRITES_WITHOUT_HITS})


def _no_news(traffic: Traffic | None, before: Condition | None) -> Condition:
    """Where neither hits nor writes were seen: what was told of them before is not contradicted.

    Before engines are there nothing is written and read, which needs no second write of a status
    once they are.
    """
    type_ = ConditionType.REMOTE_HITS_OBSERVED
    if before is not None and (traffic is None or before.reason in _SEEN):
        return before
    if traffic is Traffic.NOT_MEASURED:
        message = "no engine says what it writes to the tier and reads from it"
        return condition(type_, status=_UNKNOWN, reason=Reason.NOT_MEASURED, message=message)
    message = "nothing was read from the tier, and too little written to it to say why"
    return condition(type_, status=_UNKNOWN, reason=Reason.NO_TRAFFIC, message=message)


def _worth(model: CostModelStatus | None) -> Condition:
    type_ = ConditionType.TIER_WORTH_READING
    saved = None if model is None else model.engine_milliseconds_saved
    gained = None if model is None else model.first_token_milliseconds_gained
    tokens, busy = (None, None) if model is None else (model.hit_tokens, model.busy_percent)
    # What was published has all of them; what somebody else has written may not.
    if saved is None or gained is None or tokens is None or busy is None:
        return condition(
            type_,
            status=_UNKNOWN,
            reason=Reason.NOT_MEASURED,
            message="not every number of the cost model is measured yet: that takes some dozen "
            "loads and some dozen prompts of 4,096 tokens and more that are computed",
        )
    sooner = f"comes {gained} ms sooner" if gained >= 0 else f"comes {-gained} ms later"
    message = (
        f"a hit of {tokens:,} tokens saves {saved} ms of the engine, and its first token "
        f"{sooner}, at {busy} % busy"
    )
    if saved > 0 or gained > 0:
        return condition(type_, status=_TRUE, reason=Reason.SAVES_TIME, message=message)
    return condition(type_, status=_FALSE, reason=Reason.RECOMPUTE_IS_FASTER, message=message)


_FROZEN: Final = {
    Why.FACTS_STALE: "what engines say of themselves is too old, or they say nothing: knobs stay "
    "as they are",
    Why.FACTS_IMPLAUSIBLE: "a number that engines say of themselves cannot be true: knobs stay as "
    "they are",
}


def _active(measured: Measured, previous: KVServingStatus) -> Condition:
    type_ = ConditionType.TUNING_ACTIVE
    stopped = _stopped(measured)
    if stopped is not None:
        status, reason, message = stopped
    elif measured.reason is None:
        known = find(previous.conditions, type_)
        if known is not None:
            return known
        status, reason, message = _UNKNOWN, Reason.NOT_MEASURED, "engines were not looked at yet"
    elif measured.mode is Mode.RECOMMEND:
        message = "recommendations are in status.tuning"
        status, reason = _TRUE, Reason.RECOMMEND_ONLY
    else:
        message = "knobs are turned as measured; see status.tuning"
        status, reason = _TRUE, Reason.ACTIVE
    return condition(type_, status=status, reason=reason, message=message)


def _stopped(measured: Measured) -> tuple[ConditionStatus, Reason, str] | None:
    """Why the tuner does nothing; None while nothing stops it."""
    if measured.suspended:
        return _FALSE, Reason.SUSPENDED, "suspended: knobs stay as they are"
    if measured.refused:
        message = f"settings are not in force everywhere: {'; '.join(measured.refused[:3])}"
        return _FALSE, Reason.SETTINGS_REFUSED, message
    if measured.reason in _FROZEN and measured.trouble is not None:
        return _FALSE, measured.trouble.reason, measured.trouble.message
    if measured.reason in _FROZEN:
        return _FALSE, Reason.FACTS_STALE, _FROZEN[measured.reason]
    return None


def tuning_status(measured: Measured, previous: TuningStatus | None) -> TuningStatus | None:
    """The knobs and what became of them; None where nothing was ever decided."""
    state = measured.state
    if measured.mode is Mode.OFF and previous is None and not state.history:
        return None
    knobs = {**state.in_force, **measured.pinned}
    loading, percent = knobs.get(Knob.LOADING), knobs.get(Knob.HOT_PERCENT)
    last = max(state.history, key=lambda entry: entry.at, default=None)
    turned = max(state.turned.values(), default=None)
    return TuningStatus(
        loading=_loading(measured, loading) if measured.tier else None,
        hot_percent=round(percent) if measured.hot and isinstance(percent, float) else None,
        reason=None if last is None else _told(last),
        last_change=None if turned is None else _time(turned),
        history=_history(state, previous),
        state=to_text(state),
    )


def _loading(measured: Measured, decided: object) -> str:
    if isinstance(decided, str):
        return decided
    return "Sync" if measured.stock else "Auto"


def _history(state: State, previous: TuningStatus | None) -> tuple[TuningChange, ...]:
    """Newest first; of what the state has forgotten, what the status still says."""
    fresh = [_change(entry) for entry in reversed(state.history)]
    known = {(each.time, each.knob) for each in fresh}
    oldest = min((each.time for each in fresh), default="~")
    older = [
        each
        for each in (() if previous is None else previous.history)
        if each.time <= oldest and (each.time, each.knob) not in known
    ]
    return tuple([*fresh, *older][:_HISTORY])


def _change(entry: Entry) -> TuningChange:
    return TuningChange(
        time=_time(entry.at),
        knob=entry.knob.value,
        old=None if entry.before is None else shown(entry.before),
        new=shown(entry.after),
        reason=_told(entry),
    )


def _told(entry: Entry) -> str:
    numbers = ", ".join(f"{name} {value:.3g}" for name, value in entry.numbers.items())
    parts = [f"{entry.reason.value}: {numbers}" if numbers else entry.reason.value]
    if entry.predicted:
        parts.append(f"predicted gain {entry.predicted:.0%}")
    if entry.observed is not None:
        parts.append(f"measured gain {entry.observed:.0%}")
    if entry.verdict is not Verdict.APPLIED:
        parts.append(entry.verdict.value)
    return "; ".join(parts)[:_LONGEST_REASON]


def _time(second: float) -> str:
    """RFC 3339; a second that no clock shows is that of the epoch."""
    try:
        return timestamp(datetime.fromtimestamp(second, UTC))
    except (OverflowError, ValueError, OSError):
        return timestamp(datetime.fromtimestamp(0, UTC))
