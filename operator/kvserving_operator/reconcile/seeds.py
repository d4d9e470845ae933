"""What a control loop begins with: the status that its predecessor left; and its clock. Pure."""

from dataclasses import replace
from typing import Final

from kvserving_operator.api.v1alpha1 import CostModelStatus, KVServingStatus
from kvserving_operator.fit import Numbers
from kvserving_operator.measure import EngineFacts, Reading
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.tuner import Knob, Loading, Mode, Settings, State, Value, from_text

_FREE: Final = (None, Loading.AUTO.value, Loading.BYPASS.value)
"""Loading as the tuner sets it."""


def first_state(stored: KVServingStatus, plan: TuningPlan, at: float) -> State:
    """The stored state; of a new object what the pods start with."""
    text = None if stored.tuning is None else stored.tuning.state
    state = from_text(text)
    if state == State():
        state = State(in_force=dict(plan.settings.pinned))
    if plan.hot is not None and not isinstance(state.in_force.get(Knob.HOT_PERCENT), float):
        state = replace(state, in_force={**state.in_force, Knob.HOT_PERCENT: plan.start_percent})
    # As if it had been probed now: its patience begins anew.
    return replace(state, probed=at)


def unpinned(state: State, settings: Settings) -> State:
    """Without what the spec had pinned and does not pin any more; bypasses end by themselves."""
    dropped: set[Knob] = set()
    if Knob.LOADING not in settings.pinned and state.in_force.get(Knob.LOADING) not in _FREE:
        dropped.add(Knob.LOADING)
    if Knob.MIN_TOKENS not in settings.pinned:
        dropped.add(Knob.MIN_TOKENS)
    if settings.stock or not dropped & state.in_force.keys():
        return state
    kept = {knob: value for knob, value in state.in_force.items() if knob not in dropped}
    return replace(state, in_force=kept)


def as_started(state: State, plan: TuningPlan, now: float) -> State:
    """Of engines that restart for it, what their pods start with is in force, whatever was stored.

    Its time is kept with it, so that a state that was lost takes no dwell along. One that is yet to
    come, because the clock was set back, would hold everything until then.
    """
    if not plan.restarts:
        return state
    turned, knob = dict(state.turned), Knob.MIN_TOKENS
    if plan.decided is not None and plan.decided.at <= now:
        turned[knob] = max(turned.get(knob, 0.0), float(plan.decided.at))
    started: dict[Knob, Value] = {knob: plan.least_tokens, Knob.LOADING: Loading.SYNC.value}
    return replace(state, in_force={**state.in_force, **started}, turned=turned)


def shifted(state: State, seconds: float) -> State:
    """After the wall clock has jumped by so much: everything is as long ago as it was."""
    trial = state.trial
    return replace(
        state,
        turned={knob: at + seconds for knob, at in state.turned.items()},
        probed=None if state.probed is None else state.probed + seconds,
        trial=None if trial is None else replace(trial, since=trial.since + seconds),
    )


def within_bounds(state: State, settings: Settings) -> State:
    """HOT is no further than the spec now lets it be, also while nothing asks for another share."""
    now = state.in_force.get(Knob.HOT_PERCENT)
    if not settings.hot or settings.mode is not Mode.APPLY or not isinstance(now, float):
        return state
    bounded = min(max(now, settings.hot_least), settings.hot_most)
    if bounded == now:
        return state
    return replace(state, in_force={**state.in_force, Knob.HOT_PERCENT: bounded})


def last_good(model: CostModelStatus | None) -> Numbers:
    """The published numbers as the last good ones."""
    if model is None:
        return Numbers()
    engine, request = model.engine_fixed_milliseconds, model.request_fixed_milliseconds
    return Numbers(
        tokens_per_second=_positive(model.recompute_tokens_per_second),
        bandwidth=_positive(_number(model.bandwidth_bytes_per_second)),
        engine_fixed_seconds=None if engine is None or engine < 0 else engine / 1000,
        request_fixed_seconds=None if request is None or request < 0 else request / 1000,
    )


def bytes_per_token(model: CostModelStatus | None) -> float | None:
    """The published size of a token's KV."""
    return None if model is None else _positive(model.bytes_per_token)


def hit_tokens(model: CostModelStatus | None) -> float | None:
    """The published mean of a load's tokens."""
    return None if model is None else _positive(model.hit_tokens)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _positive(value: float | None) -> float | None:
    return float(value) if value is not None and 0 < value < 1e18 else None


def slim(reading: Reading) -> Reading:
    """A reading without the records, which are in the fit already."""

    def without(facts: EngineFacts) -> EngineFacts:
        store = facts.store
        return facts if store is None else replace(facts, store=replace(store, recent=None))

    return replace(
        reading,
        carriers={pod: without(facts) for pod, facts in reading.carriers.items()},
        decoders={pod: without(facts) for pod, facts in reading.decoders.items()},
    )
