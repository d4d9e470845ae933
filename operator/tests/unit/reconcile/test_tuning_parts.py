"""Parts of the control loop that ask nobody: traffic, seeds, and whose settings differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.api.v1alpha1 import CostModelStatus, KVServingStatus, TuningStatus
from kvserving_operator.fit import Numbers
from kvserving_operator.measure import ControlFacts, ControlSettings, Interval
from kvserving_operator.plan.model import Plan
from kvserving_operator.plan.tuning import TuningPlan
from kvserving_operator.reconcile import seeds
from kvserving_operator.reconcile.telling import bodies, wanted
from kvserving_operator.reconcile.traffic import PATIENCE, Watched
from kvserving_operator.status.measured import Traffic
from kvserving_operator.tuner import Knob, Mode, Settings, State, to_text
from tests.unit.measure.engines import engine, reading, store
from tests.unit.stack import SPLIT, TIER, planned

STORE = ["ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"]
OURS = {**SPLIT, **TIER, "engine.features": STORE}
MODEL = (52_200.0, 48_400.0, 1.08e10, 0.182, 0.148)
SENT = {"R": 52_200.0, "s": 48_400.0, "B": 1.08e10, "te": 0.182, "tw": 0.148}


def plan(changes: dict[str, Any] | None = None) -> TuningPlan:
    made: Plan = planned({**OURS, **(changes or {})})
    assert made.tuning is not None
    return made.tuning


def moved(hits: float | None, writes: float | None) -> Interval:
    return Interval(age_seconds=1.0, hits=hits, writes=writes)


def watched(*steps: tuple[float, float | None, float | None]) -> Traffic | None:
    seen = Watched()
    for at, hits, writes in steps:
        seen = seen.seen(moved(hits, writes), at)
    return seen.traffic


def test_hits_that_are_recomputed_are_hits() -> None:
    """A bypass, or a model by which computing is quicker, must not be told as wrong keys."""
    seen = Watched()
    for at in (0.0, 60.0, PATIENCE, 2 * PATIENCE):
        seen = seen.seen(replace(moved(0, 9), spared=3.0), at)
    assert seen.traffic is Traffic.HITS


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, None, None)], None),
        ([(0, 0, 9)], None),
        ([(0, 5, 0)], Traffic.HITS),
        ([(0, 0, 9), (PATIENCE, 0, 9)], Traffic.WRITES_WITHOUT_HITS),
        ([(0, 0, 9), (PATIENCE - 1, 0, 9)], None),
        ([(0, 0, 9), (60, 1, 9), (PATIENCE, 0, 9)], Traffic.HITS),
        ([(0, 1, 9), (60, 0, 9), (60 + PATIENCE, 0, 9)], Traffic.WRITES_WITHOUT_HITS),
        ([(0, 0, 9), (60, None, None), (PATIENCE, 0, 9)], Traffic.WRITES_WITHOUT_HITS),
        ([(0, 0, 0), (PATIENCE, 0, 0)], Traffic.NONE),
        ([(0, None, None), (PATIENCE, None, None)], Traffic.NOT_MEASURED),
        ([(0, None, None), (PATIENCE - 1, None, None)], None),
        ([(0, None, None), (60, 0, 0), (PATIENCE, None, None)], None),
        ([(0, 1, 0), (60, None, None), (60 + PATIENCE, None, None)], Traffic.HITS),
        ([(0, None, None), (PATIENCE, None, None), (PATIENCE + 1, 4, 0)], Traffic.HITS),
        (
            [(0, None, None), (PATIENCE, None, None), (700, 0, 0), (700 + PATIENCE, 0, 0)],
            Traffic.NONE,
        ),
        ([(0, 3, 0), (60, 0, 0), (60 + PATIENCE, 0, 0)], Traffic.HITS),
        # Hits that came while nobody told of any are not missing.
        (
            [(0, 0, 9), (60, None, None), (60 + PATIENCE, None, None), (720, 0, 9)],
            Traffic.NOT_MEASURED,
        ),
        (
            [
                (0, 0, 9),
                (60, None, None),
                (60 + PATIENCE, None, None),
                (720, 0, 9),
                (720 + PATIENCE, 0, 9),
            ],
            Traffic.WRITES_WITHOUT_HITS,
        ),
        ([(0, 0, 0), (PATIENCE, 0, 0), (PATIENCE + 60, 2, 0)], Traffic.HITS),
    ],
)
def test_the_tier_s_use(steps: list[Any], expected: Traffic | None):
    assert watched(*steps) is expected


def test_without_tier_and_hot_there_is_nothing_to_tune():
    assert planned().tuning is None
    assert planned(SPLIT).tuning is None


def test_the_plan_says_what_is_pinned_and_who_is_asked():
    free = plan()
    assert (free.settings.mode, free.settings.stock, free.settings.pinned) == (Mode.OFF, False, {})
    assert (free.carrier, free.hot, free.copies) == ("prefill", None, 1)
    pins = {"kvCache.remote.loading": {"mode": "Async", "minTokens": 512}}
    pinned = plan({**pins, "tuning": {"mode": "Apply", "interval": "30s"}}).settings
    assert pinned.pinned == {Knob.LOADING: "Async", Knob.MIN_TOKENS: 512.0}
    assert (pinned.mode, pinned.interval_seconds) == (Mode.APPLY, 30.0)
    stock = planned({**TIER, "decode.accelerator": {"resourceName": ""}}).tuning
    assert stock is not None
    assert (stock.settings.stock, stock.carrier) == (True, "decode")


def test_an_engine_without_a_tier_takes_its_hot_share_while_it_runs():
    engine = {"engine.type": "SGLang", "router.type": "SMG", "engine.features": ["GraniKV"]}
    made = planned({**engine, "kvCache.hot": {"mode": "Auto", "percent": 15}}).tuning
    assert made is not None
    assert (made.settings.stock, made.settings.hot) == (False, True)
    assert (made.carrier, made.hot, made.start_percent) == (None, "decode", 15.0)


def test_a_new_object_begins_with_what_its_pods_start_with():
    made = plan({"kvCache.remote.loading": {"mode": "Async", "minTokens": 512}})
    state = seeds.first_state(KVServingStatus(), made, 100.0)
    assert state.in_force == {Knob.LOADING: "Async", Knob.MIN_TOKENS: 512.0}
    assert state.probed == 100.0


def test_a_new_operator_goes_on_with_what_was_decided():
    before = State(in_force={Knob.LOADING: "Bypass", Knob.MODEL: MODEL}, failures={Knob.MODEL: 2})
    stored = KVServingStatus(
        tuning=TuningStatus(state=to_text(before)),
        model=CostModelStatus(
            recompute_tokens_per_second=52_000,
            bandwidth_bytes_per_second="1.1e+10",
            engine_fixed_milliseconds=180,
            bytes_per_token=48_000,
            hit_tokens=16_000,
        ),
    )
    state = seeds.first_state(stored, plan(), 100.0)
    assert state == replace(before, probed=100.0)
    assert seeds.last_good(stored.model) == Numbers(
        tokens_per_second=52_000.0, bandwidth=1.1e10, engine_fixed_seconds=0.18
    )
    assert (seeds.bytes_per_token(stored.model), seeds.hit_tokens(stored.model)) == (48_000, 16_000)


@pytest.mark.parametrize("odd", ["x", "nan", "-1", "inf", "1e400"])
def test_a_status_that_anybody_changed_gives_no_odd_number(odd: str):
    model = CostModelStatus(bandwidth_bytes_per_second=odd, recompute_tokens_per_second=-5)
    assert seeds.last_good(model) == Numbers()


def test_what_is_not_pinned_any_more_is_let_go_of():
    state = State(in_force={Knob.LOADING: "Async", Knob.MIN_TOKENS: 512.0, Knob.MODEL: MODEL})
    assert seeds.unpinned(state, Settings(mode=Mode.APPLY)).in_force == {Knob.MODEL: MODEL}
    pins = {Knob.LOADING: "Async", Knob.MIN_TOKENS: 512.0}
    assert seeds.unpinned(state, Settings(mode=Mode.APPLY, pinned=pins)) is state
    bypassed = State(in_force={Knob.LOADING: "Bypass"})
    assert seeds.unpinned(bypassed, Settings(mode=Mode.APPLY)) is bypassed


@pytest.mark.parametrize(("now", "then"), [(40.0, 25.0), (5.0, 10.0), (15.0, 15.0)])
def test_bounds_of_hot_that_were_drawn_closer_hold_at_once(now: float, then: float):
    state = State(in_force={Knob.HOT_PERCENT: now})
    settings = Settings(mode=Mode.APPLY, hot=True, hot_least=10.0, hot_most=25.0)
    assert seeds.within_bounds(state, settings).in_force == {Knob.HOT_PERCENT: then}
    for untouched in (replace(settings, mode=Mode.RECOMMEND), replace(settings, hot=False)):
        assert seeds.within_bounds(state, untouched) is state


def test_a_share_that_is_none_is_that_of_the_pods():
    engine = {"engine.type": "SGLang", "router.type": "SMG", "engine.features": ["GraniKV"]}
    made = planned({**engine, "kvCache.hot": {"mode": "Auto", "percent": 15}}).tuning
    assert made is not None
    odd = TuningStatus(state='{"inForce":{"HotPercent":"x"}}')
    assert seeds.first_state(KVServingStatus(tuning=odd), made, 1.0).in_force == {
        Knob.HOT_PERCENT: 15.0
    }


def test_settings_are_complete_and_a_model_without_numbers_is_none():
    assert wanted(State(), plan()) == ControlSettings(mode="Auto", min_tokens=0)
    state = State(in_force={Knob.LOADING: "Bypass", Knob.MIN_TOKENS: 512.0, Knob.MODEL: MODEL})
    full = ControlSettings(mode="Bypass", min_tokens=512, model=MODEL)
    assert wanted(state, plan()) == full
    unset = replace(state, in_force={**state.in_force, Knob.MODEL: "Unmeasured"})
    assert wanted(unset, plan()) == replace(full, model=None)


WANT = ControlSettings(mode="Auto", min_tokens=0, model=MODEL, hot_percent_wanted=25)


def told(settings: ControlSettings | None, **changes: Any) -> list[dict[str, Any]]:
    made = engine(store=store(settings=settings, **changes))
    return [body for _, body in bodies(reading(made), WANT)]


def test_who_has_other_settings_is_sent_all_of_them():
    assert told(ControlSettings(mode="Auto", min_tokens=0)) == [
        {"mode": "Auto", "minTokens": 0, "model": SENT}
    ]
    other = tuple(1.01 * part for part in MODEL)
    assert len(told(ControlSettings(mode="Auto", min_tokens=0, model=other))) == 1  # type: ignore[arg-type]


def test_who_has_them_or_does_not_say_is_left_alone():
    near = tuple(part * (1 + 1e-9) for part in MODEL)
    assert told(ControlSettings(mode="Auto", min_tokens=0, model=near)) == []  # type: ignore[arg-type]
    assert told(None) == []
    assert told(ControlSettings(mode="Sync", min_tokens=0), start_id=None) == []


def test_hot_is_told_apart_and_together():
    hot = ControlFacts(start_id="g1", settings=ControlSettings(hot_percent_wanted=20))
    both = engine(store=store(), hot=hot)
    [(facts, body)] = bodies(reading(both, hot=(both,)), WANT)
    assert facts is both
    assert (body["mode"], body["hotPercent"]) == ("Auto", 25)
    alone = engine("x-decode-0", store=None, hot=hot)
    [(_, body)] = bodies(reading(hot=(alone,)), WANT)
    assert body == {"hotPercent": 25}
    taken = replace(hot, settings=ControlSettings(hot_percent=20, hot_percent_wanted=25))
    assert list(bodies(reading(hot=(replace(alone, hot=taken),)), WANT)) == []
