"""What the tuner does and, most of the time, does not do."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from kvserving_operator.fit import Source
from kvserving_operator.tuner import (
    UNMEASURED,
    Knob,
    Loading,
    Mode,
    Reason,
    Settings,
    State,
    Verdict,
)
from tests.unit.tuner.plant import (
    APPLY,
    CALM,
    HOT,
    INTERVAL,
    STOCK,
    Run,
    known,
    number,
    settled,
    slow,
)

HOT_ON = replace(APPLY, hot=True)
HOUR = 3_600.0


def test_the_model_is_pushed_once_it_is_measured_and_again_when_it_moved():
    run = Run()
    assert run.step(CALM).change is None
    change = run.step(CALM).change
    assert change is not None
    assert (change.knob, change.value) == (Knob.MODEL, (52_200, 48_400, 1.08e10, 0.182, 0.148))
    assert "B=1.08e+10" in change.message
    run.changes.clear()
    run.steps(replace(CALM, known=known(bandwidth=10.1e9)), 20)
    assert run.changes == []
    run.until(slow(8e9), Knob.MODEL, most=3)


def test_numbers_that_were_not_measured_are_not_pushed():
    run = Run()
    outcome = run.steps(replace(CALM, known=known(source=Source.LAST_GOOD)), 10)
    assert run.changes == []
    assert outcome.reason is Reason.FACTS_MISSING


def test_a_tier_below_the_floor_is_bypassed_and_read_again_within_five_intervals():
    run = settled()
    assert run.until(slow(0.4e9), Knob.LOADING, most=5) <= 5
    assert run.changes[-1][2] == Loading.BYPASS
    run.steps(slow(0.4e9), 20)
    assert run.state.in_force[Knob.LOADING] == Loading.BYPASS
    assert run.until(CALM, Knob.LOADING, most=5) <= 5
    assert run.changes[-1][2] == Loading.AUTO


def test_a_bypass_without_probes_ends_by_itself():
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    silent = replace(slow(0.4e9), probed=False, bandwidth=None)
    run.until(silent, Knob.LOADING, most=6)
    assert run.state.history[-1].reason is Reason.NO_PROBE
    assert run.state.in_force[Knob.LOADING] == Loading.AUTO


def test_a_tier_most_of_which_is_down_is_bypassed():
    run = settled()
    run.until(replace(CALM, open_breakers=0.75), Knob.LOADING, most=3)
    assert run.state.history[-1].reason is Reason.TIER_MOSTLY_DOWN


def test_a_bandwidth_that_may_be_enough_is_not_bypassed():
    run = settled()
    floor = 2.5265e9 * 0.5 * 0.9
    wide = replace(slow(floor * 0.95), bandwidth=number(floor * 0.95, spread=0.1))
    run.steps(wide, 20)
    assert Knob.LOADING not in {knob for _, knob, _ in run.changes}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(CALM, age_seconds=200.0), Reason.FACTS_STALE),
        (replace(CALM, busy=math.nan), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, busy=1.5), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, bytes_per_token=-1.0), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, hit_tokens=1e300), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, known=known(bandwidth=math.inf)), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, known=known(rate=0.0)), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, bandwidth=number(-1.0)), Reason.FACTS_IMPLAUSIBLE),
        (replace(CALM, hot=replace(HOT, occupancy=7.0)), Reason.FACTS_IMPLAUSIBLE),
    ],
)
def test_facts_that_are_stale_or_cannot_be_true_turn_nothing(facts: object, reason: Reason):
    run = Run(settings=replace(APPLY, hot=True))
    for _ in range(10):
        outcome = run.step(facts)  # type: ignore[arg-type]
        assert (outcome.change, outcome.reason) == (None, reason)
    assert run.state == State()


def test_missing_numbers_are_not_zeros():
    run = settled()
    nothing = replace(
        CALM, busy=None, hit_tokens=None, first_token_seconds=None, bandwidth=None,
        bytes_per_token=None, probed=False,
    )  # fmt: skip
    assert run.steps(nothing, 20).reason is Reason.FACTS_MISSING
    assert run.changes == []


def test_one_odd_interval_turns_nothing():
    run = settled()
    for _ in range(10):
        run.steps(slow(0.4e9), 1)
        run.steps(CALM, 1)
    assert run.changes == []


def test_off_turns_nothing_and_recommend_only_tells():
    off = Run(settings=Settings(mode=Mode.OFF))
    assert off.steps(CALM, 5).reason is Reason.TURNED_OFF
    told = Run(settings=Settings(mode=Mode.RECOMMEND))
    outcomes = [told.step(CALM) for _ in range(20)]
    changes = [outcome for outcome in outcomes if outcome.change is not None]
    assert len(changes) == 1
    assert changes[0].recommend
    assert told.state.in_force == {}
    assert told.state.recommended.keys() == {Knob.MODEL}
    assert [entry.verdict for entry in told.state.history] == [Verdict.RECOMMENDED]


def test_what_the_spec_pins_wins_at_once_and_stays():
    run = settled()
    run.settings = replace(APPLY, pinned={Knob.LOADING: Loading.ASYNC.value})
    change = run.step(slow(0.4e9)).change
    assert change is not None
    assert (change.value, change.reason) == (Loading.ASYNC, Reason.PINNED)
    run.steps(slow(0.4e9), 20)
    assert run.state.in_force[Knob.LOADING] == Loading.ASYNC


def test_a_pin_wins_over_a_change_that_is_being_judged():
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    run.settings = replace(APPLY, pinned={Knob.LOADING: Loading.AUTO.value})
    assert run.step(slow(0.4e9)).reason is Reason.PINNED
    run.steps(replace(slow(0.4e9), first_token_seconds=9.0), 10)
    assert run.state.in_force[Knob.LOADING] == Loading.AUTO


def test_what_made_it_worse_is_taken_back_and_waits_longer_each_time():
    run = Run(settings=STOCK)
    run.state = State(in_force={Knob.MIN_TOKENS: 0.0})
    waits, begun = [], run.at
    for _ in range(3):
        run.until(CALM, Knob.MIN_TOKENS, most=400)
        turned = run.at
        assert run.changes[-1][2] == 22_528
        waits.append(turned - begun)
        run.until(replace(CALM, first_token_seconds=0.9), Knob.MIN_TOKENS, most=400)
        begun = run.at
        assert begun - turned >= HOUR
        assert run.changes[-1][2] == 0.0
        assert run.state.history[-1].reason is Reason.WORSE
        assert run.state.history[-2].verdict is Verdict.ROLLED_BACK
        assert run.state.history[-2].observed == pytest.approx(-0.5)
    assert waits == [2 * INTERVAL, 2 * HOUR, 4 * HOUR]


def test_what_made_it_better_is_confirmed_with_the_number():
    run = Run(settings=STOCK)
    run.until(CALM, Knob.MIN_TOKENS)
    run.steps(replace(CALM, first_token_seconds=0.45), 61)
    entry = run.state.history[-1]
    assert (entry.verdict, entry.observed) == (Verdict.CONFIRMED, pytest.approx(0.25))


def test_under_another_load_nothing_is_judged():
    run = Run(settings=STOCK)
    run.until(CALM, Knob.MIN_TOKENS)
    run.steps(replace(CALM, first_token_seconds=5.0, busy=0.75), 61)
    entry = next(e for e in run.state.history if e.knob is Knob.MIN_TOKENS)
    assert entry.verdict is Verdict.UNCLEAR


def test_the_threshold_of_a_stock_engine_is_n_of_an_idle_engine_in_whole_chunks():
    """A synchronous load holds the engine as computing does, so u is in both costs alike."""
    for busy in (0.0, 0.5, 0.95):
        run = Run(settings=STOCK)
        run.until(replace(CALM, busy=busy), Knob.MIN_TOKENS)
        assert run.changes == [(run.at, Knob.MIN_TOKENS, math.ceil(22_512 / 256) * 256)]
        assert run.state.history[-1].predicted == pytest.approx(1 - 0.314 / 0.4037, abs=0.001)


def test_a_restart_needs_a_fifth_of_gain():
    """At the mean hit, and by what it brings from the tier: memory has the rest for nothing."""
    for little in (
        replace(CALM, known=known(engine=0.16)),
        replace(CALM, hit_tokens=60_000),
        replace(CALM, hit_bytes=0.6 * 16_390 * 48_400),
        replace(CALM, hit_tokens=None),
    ):
        run = Run(settings=STOCK)
        run.steps(little, 100)
        assert run.changes == []


def test_a_threshold_that_would_end_all_loads_is_advised_and_never_carried_out():
    run = Run(settings=replace(STOCK, longest_tokens=200_000))
    run.steps(slow(0.5e9), 200)
    assert run.changes == []
    [entry] = run.state.history
    assert (entry.after, entry.verdict) == (200_001.0, Verdict.RECOMMENDED)
    run.steps(replace(slow(0.5e9), hot=None), 10)
    assert len(run.state.history) == 1, "told once"


def test_nothing_restarts_by_what_the_tier_was_an_hour_ago_nor_in_a_roll():
    old = replace(number(0.182), age_seconds=HOUR + 1)
    stale = replace(CALM, known=replace(CALM.known, engine_fixed_seconds=old))
    last = replace(CALM, known=known(source=Source.LAST_GOOD))
    for facts in (stale, last, replace(CALM, settled=False), replace(CALM, age_seconds=151.0)):
        run = Run(settings=STOCK)
        run.steps(facts, 200)
        assert run.changes == []
    # What an engine computes is its own: R may be older.
    rate = replace(CALM.known.tokens_per_second or number(1.0), age_seconds=9 * HOUR)
    run = Run(settings=STOCK)
    run.until(replace(CALM, known=replace(CALM.known, tokens_per_second=rate)), Knob.MIN_TOKENS)


def test_a_restart_is_judged_after_the_roll_and_taken_back_for_a_fifth():
    run = Run(settings=STOCK)
    run.until(CALM, Knob.MIN_TOKENS)
    run.steps(replace(CALM, first_token_seconds=0.9, settled=False), 300)
    assert len(run.changes) == 1
    # Going back from .74 to .6 gains less than a fifth.
    run.steps(replace(CALM, first_token_seconds=0.74), 2)
    assert run.state.history[-1].verdict is Verdict.CONFIRMED
    assert len(run.changes) == 1


def test_a_pinned_threshold_restarts_nothing_whatever_is_measured():
    run = Run(settings=replace(STOCK, pinned={Knob.MIN_TOKENS: 0.0}))
    run.state = State(in_force={Knob.MIN_TOKENS: 0.0})
    run.steps(CALM, 200)
    assert run.changes == []


def test_hot_grows_to_what_live_prefixes_need_in_bounded_steps():
    run = settled(HOT_ON, replace(CALM, hot=HOT))
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.HOT_PERCENT: 10.0})
    short = replace(CALM, hot=replace(HOT, failed_admissions=7, occupancy=0.97))
    run.until(short, Knob.HOT_PERCENT)
    assert run.changes[-1][2] == 15.0
    run.steps(short, 30)
    # 1.1 · 180k of 1M tokens are 20 %; above it one point at a time, as long as admissions fail.
    percents = [value for _, knob, value in run.changes if knob is Knob.HOT_PERCENT]
    assert percents[1] == 20.0
    assert percents[2] == 21.0


def test_hot_gives_back_to_a_short_cold_but_not_what_prefixes_need():
    run = settled(HOT_ON, replace(CALM, hot=HOT))
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.HOT_PERCENT: 30.0})
    short = replace(CALM, hot=replace(HOT, preemptions=3, cold_free_low=0.0))
    run.steps(short, 60)
    percents = [value for _, knob, value in run.changes if knob is Knob.HOT_PERCENT]
    assert percents[0] == 25.0
    assert min(percents) >= 15.0  # type: ignore[type-var]
    assert run.state.in_force[Knob.HOT_PERCENT] <= 20.0  # type: ignore[operator]


def test_a_cold_pool_that_is_full_of_what_gives_way_is_not_short():
    """It fills with the KV of finished requests: no reason to shrink HOT, or not to grow it."""
    full = replace(HOT, cold_free_low=0.0)
    run = settled(HOT_ON, replace(CALM, hot=full))
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.HOT_PERCENT: 30.0})
    run.steps(replace(CALM, hot=full), 30)
    assert run.state.in_force[Knob.HOT_PERCENT] == 30.0
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.HOT_PERCENT: 10.0})
    # Slabs are long: a HOT that is too small for one more is not full.
    asked = replace(CALM, hot=replace(full, failed_admissions=7, occupancy=0.6))
    run.until(asked, Knob.HOT_PERCENT)
    assert run.changes[-1][2] == 15.0


def test_hot_keeps_its_bounds():
    run = settled(replace(HOT_ON, hot_least=10.0, hot_most=12.0), replace(CALM, hot=HOT))
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.HOT_PERCENT: 11.0})
    run.steps(replace(CALM, hot=replace(HOT, failed_admissions=9, occupancy=1.0)), 40)
    assert run.state.in_force[Knob.HOT_PERCENT] == 12.0


def test_one_knob_at_a_time():
    run = Run(settings=HOT_ON, state=State(in_force={Knob.HOT_PERCENT: 10.0}))
    everything = replace(slow(0.4e9), hot=replace(HOT, failed_admissions=7, occupancy=0.97))
    run.steps(everything, 30)
    assert {knob for _, knob, _ in run.changes} == {
        Knob.LOADING,
        Knob.MODEL,
        Knob.HOT_PERCENT,
    }
    times = [at for at, _, _ in run.changes]
    assert all(b - a >= APPLY.dwell_seconds for a, b in pairwise(times))


def test_a_clock_that_is_set_back_holds_nothing_for_ever():
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    run.at -= 10_000_000
    run.until(CALM, Knob.LOADING, most=8)
    assert run.state.in_force[Knob.LOADING] == Loading.AUTO


LOW = (52_200.0, 48_400.0, 0.4e9, 0.182, 0.148)


def test_a_bypass_ends_with_the_model_by_which_it_ends():
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.MODEL: LOW})
    run.until(CALM, Knob.LOADING, most=12)
    model = run.state.in_force[Knob.MODEL]
    assert isinstance(model, tuple)
    assert model[2] == pytest.approx(10.76e9, rel=0.01)


def test_a_bypass_that_only_some_probes_end_leaves_engines_without_a_model():
    """By the mean of them the tier is still slow, and engines would go on recomputing."""
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    mixed = replace(slow(0.4e9), bandwidth=replace(number(0.4e9), high=9e9))
    run.until(mixed, Knob.LOADING)
    assert run.state.in_force[Knob.LOADING] == Loading.AUTO
    assert run.state.in_force[Knob.MODEL] == UNMEASURED


def test_a_bypass_that_nobody_probes_ends_without_a_model():
    run = settled()
    run.until(slow(0.4e9), Knob.LOADING)
    run.until(replace(slow(0.4e9), probed=False), Knob.LOADING, most=8)
    assert run.state.in_force[Knob.LOADING] == Loading.AUTO
    assert run.state.in_force[Knob.MODEL] == UNMEASURED


def test_a_model_by_which_nothing_is_read_is_taken_away_when_nobody_looks():
    run = settled()
    run.state = replace(run.state, in_force={**run.state.in_force, Knob.MODEL: LOW})
    unseen = replace(slow(0.4e9), probed=False, declined=True, bandwidth=None)
    run.until(unseen, Knob.MODEL, most=8)
    assert run.state.in_force[Knob.MODEL] == UNMEASURED
    assert run.state.history[-1].reason is Reason.NO_PROBE
    quiet = settled()
    quiet.state = replace(quiet.state, in_force={**quiet.state.in_force, Knob.MODEL: LOW})
    quiet.steps(replace(unseen, declined=False, known=known(bandwidth=0.4e9)), 12)
    assert quiet.state.in_force[Knob.MODEL] == LOW, "without hits there is nothing to miss"


def test_instances_of_which_nothing_is_known_are_not_down():
    run = settled()
    run.steps(replace(CALM, open_breakers=None), 6)
    assert run.state.in_force.get(Knob.LOADING, Loading.AUTO) == Loading.AUTO


def test_a_recommendation_that_scatters_is_told_once():
    run = Run(settings=replace(APPLY, mode=Mode.RECOMMEND))
    for index in range(40):
        run.steps(replace(CALM, known=known(bandwidth=10.76e9 * (1 + 0.03 * (-1) ** index))), 1)
    told = [entry for entry in run.state.history if entry.knob is Knob.MODEL]
    assert len(told) == 1
