"""What each knob's own measurements ask for. Pure; nothing here knows of dwell or order.

Every threshold has two edges: what asks for a change lies beyond the outer one, what takes it back
beyond the inner one, and what is between leaves everything as it is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kvserving_operator.cost import (
    Load,
    Model,
    break_even_tokens,
    floor_bandwidth,
    recompute_seconds,
)
from kvserving_operator.tuner.facts import Facts
from kvserving_operator.tuner.model import Knob, Loading, Mode, Reason, Settings, State, Value

MARGIN: Final = 0.1
"""h: how far below break-even even the upper bound of B must be before the tier is bypassed."""
MODEL_MOVED: Final = 0.1
"""A number of the model that moved less is not worth a message to every engine."""
RESTART_GAIN: Final = 0.2
"""A restart costs every engine its local cache: less gain is not worth it."""
UNMEASURED: Final = "Unmeasured"
"""The model of engines that have none: they load every hit of minTokens and more."""
PATIENCE: Final = 3
"""Intervals without a probe after which a bypass ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change that is asked for."""

    knob: Knob
    value: Value
    reason: Reason
    gain: float = 0.0
    """Predicted, as a share of the cost."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    restarts: bool = False
    at_once: bool = False
    """Whether it need not be asked for twice: nothing is measured any more."""
    model: Value | None = None
    """The model that goes along with it; None: it stays as it is."""
    advice: bool = False
    """Whether it is told only, whatever the mode."""


def loading(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """Auto or Bypass for our store; a stock engine has one way to load, the synchronous one."""
    if settings.stock:
        return None
    now = state.in_force.get(Knob.LOADING, Loading.AUTO.value)
    if now == Loading.BYPASS.value:
        return _back(state, facts, settings)
    if _mostly_down(facts):
        numbers = {"openBreakers": facts.open_breakers or 0.0}
        return _mode(Loading.BYPASS, Reason.TIER_MOSTLY_DOWN, numbers)
    floor = _floor(facts, MARGIN)
    if floor is None or facts.bandwidth is None or facts.bandwidth.high >= floor:
        return None
    numbers = {"bandwidthHigh": facts.bandwidth.high, "floor": floor}
    return _mode(Loading.BYPASS, Reason.TIER_TOO_SLOW, numbers)


def _back(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """The way out of a bypass: a tier that is quick enough again, or one that nobody looks at."""
    last = max(state.probed or 0.0, state.turned.get(Knob.LOADING, 0.0))
    if facts.at - last > PATIENCE * settings.interval_seconds:
        found = _mode(Loading.AUTO, Reason.NO_PROBE, {"silentSeconds": facts.at - last}, now=True)
        # With the model by which nothing was loaded, nothing would be measured either.
        return replace(found, model=UNMEASURED)
    floor = _floor(facts, 0.0)
    if _mostly_down(facts) or floor is None or facts.bandwidth is None:
        return None
    if facts.bandwidth.high < floor:
        return None
    found = _mode(
        Loading.AUTO, Reason.TIER_BACK, {"bandwidthHigh": facts.bandwidth.high, "floor": floor}
    )
    if facts.bandwidth.value < floor:
        # Some probes say so and others not yet: by their mean engines would go on recomputing.
        return replace(found, model=UNMEASURED)
    measured = _model(facts) if facts.known.measured else None
    return found if measured is None else replace(found, model=_values(measured))


def _mostly_down(facts: Facts) -> bool:
    """Whether more than half of the instances are given up; not known is not."""
    return facts.open_breakers is not None and facts.open_breakers > 0.5


def _mode(
    wanted: Loading, reason: Reason, numbers: Mapping[str, float], *, now: bool = False
) -> Proposal:
    return Proposal(
        knob=Knob.LOADING, value=wanted.value, reason=reason, numbers=numbers, at_once=now
    )


def _floor(facts: Facts, margin: float) -> float | None:
    model = _model(facts)
    if model is None or facts.busy is None:
        return None
    return floor_bandwidth(model, Load(busy=facts.busy), margin)


def model(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """The model's numbers, once one of them moved. Only measured ones are sent."""
    has = isinstance(state.in_force.get(Knob.MODEL), tuple)
    bypassed = state.in_force.get(Knob.LOADING) == Loading.BYPASS.value
    # A bypassed tier is probed by engines that have a model; a newer one changes nothing there.
    if settings.stock or (bypassed and has):
        return None
    unseen = _unseen(state, facts, settings)
    if unseen is not None:
        return unseen
    found = _model(facts)
    if found is None or not facts.known.measured:
        return None
    numbers = _values(found)
    before = _before(state, Knob.MODEL, settings)
    moved = math.inf if not isinstance(before, tuple) else _moved(before, numbers)
    if moved < MODEL_MOVED:
        return None
    named = dict(zip(("R", "s", "B", "te", "tw"), numbers, strict=True))
    return Proposal(knob=Knob.MODEL, value=numbers, reason=Reason.MODEL_MOVED, numbers=named)


def _unseen(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """No model, after one by which all hits are recomputed, so that nobody sees a better tier."""
    if not facts.declined or not isinstance(state.in_force.get(Knob.MODEL), tuple):
        return None
    last = max(state.probed or 0.0, state.turned.get(Knob.MODEL, 0.0))
    if facts.at - last <= PATIENCE * settings.interval_seconds:
        return None
    numbers = {"silentSeconds": facts.at - last}
    return Proposal(
        knob=Knob.MODEL, value=UNMEASURED, reason=Reason.NO_PROBE, numbers=numbers, at_once=True
    )


def _before(state: State, knob: Knob, settings: Settings) -> Value | None:
    """What a value is compared with: what is in force, or what was recommended last."""
    if settings.mode is Mode.RECOMMEND and knob in state.recommended:
        return state.recommended[knob]
    return state.in_force.get(knob)


def _values(found: Model) -> tuple[float, float, float, float, float]:
    """The model as it is sent: three digits are more than is known."""
    rate, size, bandwidth, engine, request = (
        float(f"{value:.3g}")
        for value in (
            found.tokens_per_second,
            found.bytes_per_token,
            found.bandwidth,
            found.engine_fixed_seconds,
            found.request_fixed_seconds,
        )
    )
    return rate, size, bandwidth, engine, request


def _moved(before: tuple[float, ...], after: tuple[float, ...]) -> float:
    return max(abs(new - old) / max(abs(old), 1e-9) for old, new in zip(before, after, strict=True))


def min_tokens(state: State, facts: Facts, settings: Settings) -> Proposal | None:
    """n* in whole chunks, for engines that cannot decide themselves and restart for another one.

    All of a synchronous load holds the engine, as computing does, so u is in both costs alike and
    n* is that of an idle engine. A threshold beyond every prompt is never carried out: nothing
    would be loaded after it, and nobody would see the tier become quicker.
    """
    found = _model(facts)
    if not settings.stock or found is None or not _measured_lately(facts, settings):
        return None
    edge = break_even_tokens(found)
    most = settings.longest_tokens + 1
    chunk = settings.chunk_tokens
    wanted = float(most if edge >= most else min(most, math.ceil(edge / chunk) * chunk))
    before = _before(state, Knob.MIN_TOKENS, settings)
    before = 0.0 if before is None else before
    gain = _threshold_gain(found, facts, before, wanted)
    advice = wanted >= most
    told = advice and state.recommended.get(Knob.MIN_TOKENS) == wanted
    if gain <= RESTART_GAIN or told:
        return None
    return Proposal(
        knob=Knob.MIN_TOKENS,
        value=wanted,
        reason=Reason.BREAK_EVEN_MOVED,
        gain=gain,
        numbers={"breakEvenTokens": min(edge, most), "hitTokens": facts.hit_tokens or 0.0},
        restarts=True,
        advice=advice,
    )


def _measured_lately(facts: Facts, settings: Settings) -> bool:
    """Whether all of the model was measured, and what the tier does within a restart's dwell.

    R is the engine's own, and measured anew for each revision; a tier may be another meanwhile.
    """
    known = facts.known
    of_tier = (known.bandwidth, known.engine_fixed_seconds, known.request_fixed_seconds)
    return known.measured and all(
        number is not None
        and number.age_seconds is not None
        and number.age_seconds <= settings.restart_dwell_seconds
        for number in of_tier
    )


def _threshold_gain(found: Model, facts: Facts, before: Value, wanted: float) -> float:
    """Share of a mean hit's cost that another threshold saves; 0 where it decides alike."""
    tokens, size = facts.hit_tokens, facts.hit_bytes
    if tokens is None or not isinstance(before, float):
        return 0.0
    size = tokens * found.bytes_per_token if size is None else size
    loading = found.fixed_seconds + size / found.bandwidth
    costs = {True: loading, False: recompute_seconds(found, tokens)}
    old, new = costs[tokens >= before], costs[tokens >= wanted]
    return 1 - new / old if old > 0 else 0.0


def _model(facts: Facts) -> Model | None:
    size = facts.bytes_per_token
    return None if not size else facts.known.model(size)
