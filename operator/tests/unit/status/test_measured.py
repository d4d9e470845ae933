"""What the control loop found, in the status: seldom rewritten, honest about what is missing."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason, find
from kvserving_operator.api.v1alpha1 import (
    CostModelStatus,
    KVServingStatus,
    TuningChange,
    TuningStatus,
)
from kvserving_operator.fit import Numbers
from kvserving_operator.measure import Knowledge
from kvserving_operator.status import compute, decide, decisions
from kvserving_operator.status.measured import Measured, News, Traffic
from kvserving_operator.tuner import Entry, Knob, Mode, State, Verdict, from_text
from kvserving_operator.tuner import Reason as Why
from tests.unit.stack import planned
from tests.unit.status.situations import NOW, get, refusal, situation

GOOD = Numbers(
    tokens_per_second=52_200.0,
    bandwidth=10.76e9,
    engine_fixed_seconds=0.182,
    request_fixed_seconds=0.148,
)
KNOWN = Knowledge(last_good=GOOD, bytes_per_token=48_400.0, hit_tokens=16_390.0, shares=(0.8,))
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def measured(**changes: Any) -> Measured:
    made = Measured(
        mode=Mode.APPLY,
        suspended=False,
        tier=True,
        hot=False,
        stock=False,
        state=State(),
        pinned={},
        knowledge=KNOWN,
        now=0.0,
        reason=Why.STEADY,
        traffic=Traffic.HITS,
    )
    return replace(made, **changes)


def status(previous: KVServingStatus | None = None, **changes: Any) -> KVServingStatus:
    stored = KVServingStatus() if previous is None else previous
    return compute(situation(previous=stored, measured=measured(**changes)), now=NOW)


def test_the_model_has_two_digits_and_what_follows_from_it():
    model = status().model
    assert model is not None
    assert (model.recompute_tokens_per_second, model.bytes_per_token) == (52_000, 48_000)
    assert model.bandwidth_bytes_per_second == "1.1e+10"
    assert (model.engine_fixed_milliseconds, model.request_fixed_milliseconds) == (180, 150)
    assert (model.hit_tokens, model.busy_percent) == (16_000, 80)
    assert (model.break_even_tokens_idle, model.break_even_tokens_now) == (22_000, 11_000)
    assert model.engine_milliseconds_saved == 130
    assert model.first_token_milliseconds_gained == 420


def test_worth_reading_has_both_numbers_in_its_message():
    found = get(status(), ConditionType.TIER_WORTH_READING)
    assert (found.status, found.reason) == (TRUE, Reason.SAVES_TIME)
    assert found.message == (
        "a hit of 16,000 tokens saves 130 ms of the engine, and its first token comes 420 ms "
        "sooner, at 80 % busy"
    )


def test_a_tier_that_is_too_slow_is_not_worth_reading():
    slow = replace(GOOD, bandwidth=0.4e9, engine_fixed_seconds=0.4)
    made = status(knowledge=replace(KNOWN, last_good=slow, shares=(0.1,)))
    found = get(made, ConditionType.TIER_WORTH_READING)
    assert (found.status, found.reason) == (FALSE, Reason.RECOMPUTE_IS_FASTER)
    assert "saves -92 ms" in found.message
    assert "ms later" in found.message
    assert made.model is not None
    assert made.model.break_even_tokens_now is None, "no length is worth it"


ANY = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 200)
SHOWN = st.fixed_dictionaries(
    {
        name: st.none() | st.text(max_size=8) | st.sampled_from(["1e10", "nan", "1e400", "-1"])
        if field.annotation is not None and str in get_args(field.annotation)
        else ANY
        for name, field in CostModelStatus.model_fields.items()
    },
)


@given(shown=SHOWN, knowledge=st.sampled_from([Knowledge(), KNOWN, replace(KNOWN, shares=())]))
def test_whatever_a_status_says_of_the_model_the_next_one_is_computed(
    shown: dict[str, Any], knowledge: Knowledge
):
    """Whoever may write a status may write anything that its schema lets through."""
    stored = KVServingStatus(model=CostModelStatus(**shown))
    made = status(stored, knowledge=knowledge)
    assert status(made, knowledge=knowledge).model == made.model


@pytest.mark.parametrize(
    "less",
    [
        replace(KNOWN, last_good=replace(GOOD, bandwidth=None)),
        replace(KNOWN, bytes_per_token=None),
        replace(KNOWN, hit_tokens=None),
        replace(KNOWN, shares=()),
        Knowledge(),
    ],
)
def test_with_a_number_missing_it_is_unknown(less: Knowledge):
    found = get(status(knowledge=less), ConditionType.TIER_WORTH_READING)
    assert (found.status, found.reason) == (UNKNOWN, Reason.NOT_MEASURED)


def test_replicas_behind_a_router_gain_less_than_one_engine_that_is_as_busy():
    one = status().model
    four = compute(
        situation(outcome=planned({"decode.replicas": 4}), measured=measured()), now=NOW
    ).model
    assert one is not None
    assert four is not None
    assert one.first_token_milliseconds_gained is not None
    assert four.first_token_milliseconds_gained is not None
    assert one.first_token_milliseconds_gained > 100 * abs(four.first_token_milliseconds_gained)
    assert (one.break_even_tokens_now or 0) < (four.break_even_tokens_now or 0)
    assert one.break_even_tokens_idle == four.break_even_tokens_idle


def test_a_replica_more_moves_what_follows_from_it_and_nothing_else():
    stored = status()
    several = situation(
        previous=stored, outcome=planned({"decode.replicas": 2}), measured=measured()
    )
    more = compute(several, now=NOW).model
    assert more is not None
    assert stored.model is not None
    assert more.break_even_tokens_now != stored.model.break_even_tokens_now
    assert more.engine_fixed_milliseconds == stored.model.engine_fixed_milliseconds
    # A look at which no store answered is no other kind of engine.
    silent = measured(knowledge=replace(KNOWN, blocking=True))
    assert status(stored, knowledge=silent.knowledge) == stored
    # An operator that knows nothing yet leaves them as they are.
    unread = replace(several, measured=measured(knowledge=Knowledge()))
    assert compute(unread, now=NOW).model == stored.model


def noisy(rng: random.Random, spread: float) -> Knowledge:
    def near(value: float) -> float:
        return value * (1 + rng.uniform(-spread, spread))

    return Knowledge(
        last_good=Numbers(
            tokens_per_second=near(52_200.0),
            bandwidth=near(10.76e9),
            engine_fixed_seconds=near(0.182),
            request_fixed_seconds=near(0.148),
        ),
        bytes_per_token=48_400.0,
        hit_tokens=near(16_390.0),
        shares=(0.8 + rng.uniform(-0.04, 0.04),),
    )


def test_steady_traffic_writes_nothing():
    """An hour of looks whose numbers scatter as fits of 200 samples do."""
    rng = random.Random(5)  # noqa: S311
    stored = status()
    for _ in range(60):
        fresh = status(stored, knowledge=noisy(rng, 0.03))
        assert fresh == stored


def test_a_number_that_moved_takes_all_the_others_along_within_five_minutes():
    stored = status()
    moved = replace(GOOD, bandwidth=8e9, tokens_per_second=54_000.0)
    fresh = status(stored, knowledge=replace(KNOWN, last_good=moved))
    assert fresh.model is not None
    assert fresh.model.recompute_tokens_per_second == 54_000
    written = NOW - timedelta(seconds=100)
    early = decide(stored, fresh, written_at=written, now=NOW)
    assert (early.write, early.look_again) == (False, 200.0)
    assert decide(stored, fresh, written_at=NOW - timedelta(seconds=300), now=NOW).write


@pytest.mark.parametrize(("busy", "told"), [(0.0, False), (0.04, False), (0.3, True)])
def test_that_an_engine_idles_is_no_model(busy: float, *, told: bool):
    """An object that nobody has used yet has one write less."""
    fresh = status(knowledge=Knowledge(shares=(busy,)))
    assert (fresh.model is not None) is told


def test_what_is_not_measured_any_more_stays():
    stored = status()
    fresh = status(stored, knowledge=Knowledge(), reason=None, traffic=None)
    assert fresh == stored


@pytest.mark.parametrize(
    ("traffic", "expected", "reason"),
    [
        (Traffic.HITS, TRUE, Reason.HITS_OBSERVED),
        (Traffic.WRITES_WITHOUT_HITS, FALSE, Reason.WRITES_WITHOUT_HITS),
        (Traffic.NONE, UNKNOWN, Reason.NO_TRAFFIC),
        (Traffic.NOT_MEASURED, UNKNOWN, Reason.NOT_MEASURED),
        (None, UNKNOWN, Reason.NO_TRAFFIC),
    ],
)
def test_hits(traffic: Traffic | None, expected: ConditionStatus, reason: Reason):
    found = get(status(traffic=traffic), ConditionType.REMOTE_HITS_OBSERVED)
    assert (found.status, found.reason) == (expected, reason)


@pytest.mark.parametrize("told", [Traffic.HITS, Traffic.WRITES_WITHOUT_HITS])
@pytest.mark.parametrize("traffic", [None, Traffic.NONE, Traffic.NOT_MEASURED])
def test_what_was_seen_once_is_told_until_something_else_is(told: Traffic, traffic: Traffic | None):
    """An operator that starts anew beside idle engines writes nothing."""
    before = status(traffic=told)
    assert status(before, traffic=traffic) == before


def test_what_is_measured_again_is_told():
    before = status(traffic=Traffic.NOT_MEASURED)
    assert status(before, traffic=None) == before
    found = get(status(before, traffic=Traffic.NONE), ConditionType.REMOTE_HITS_OBSERVED)
    assert found.reason == Reason.NO_TRAFFIC


def test_causes_come_in_their_order():
    text = get(status(traffic=Traffic.WRITES_WITHOUT_HITS), ConditionType.REMOTE_HITS_OBSERVED)
    causes = ("hash algorithm", "epoch", "chunkTokens", "evicted")
    places = [text.message.index(cause) for cause in causes]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({}, TRUE, Reason.ACTIVE),
        ({"mode": Mode.RECOMMEND}, TRUE, Reason.RECOMMEND_ONLY),
        ({"suspended": True}, FALSE, Reason.SUSPENDED),
        ({"refused": ("x-0: its agent is silent",)}, FALSE, Reason.SETTINGS_REFUSED),
        ({"reason": Why.FACTS_STALE}, FALSE, Reason.FACTS_STALE),
        ({"reason": Why.FACTS_IMPLAUSIBLE}, FALSE, Reason.FACTS_STALE),
        ({"reason": None}, UNKNOWN, Reason.NOT_MEASURED),
        ({"stock": True}, TRUE, Reason.ACTIVE),
    ],
)
def test_the_tuner(changes: dict[str, Any], expected: ConditionStatus, reason: Reason):
    found = get(status(**changes), ConditionType.TUNING_ACTIVE)
    assert (found.status, found.reason) == (expected, reason)


def test_what_is_off_has_no_condition():
    off = status(mode=Mode.OFF)
    assert find(off.conditions, ConditionType.TUNING_ACTIVE) is None
    assert off.tuning is None
    hot = status(tier=False, hot=True)
    assert find(hot.conditions, ConditionType.TIER_WORTH_READING) is None
    assert hot.model is None
    without = compute(situation(previous=status(), outcome=planned()), now=NOW)
    assert (without.model, without.tuning) == (None, None)
    assert find(without.conditions, ConditionType.REMOTE_HITS_OBSERVED) is None


def test_a_refused_spec_leaves_what_was_measured():
    stored = status()
    fresh = compute(situation(previous=stored, outcome=refusal(Reason.INVALID)), now=NOW)
    assert (fresh.model, fresh.tuning) == (stored.model, stored.tuning)
    for type_ in (ConditionType.TIER_WORTH_READING, ConditionType.TUNING_ACTIVE):
        assert get(fresh, type_).status is TRUE


def entry(at: float, **changes: Any) -> Entry:
    made = Entry(
        at=at,
        knob=Knob.MODEL,
        before=None,
        after=(52_200.0, 48_400.0, 1.08e10, 0.182, 0.148),
        reason=Why.MODEL_MOVED,
        numbers={"R": 52_200.0, "s": 48_400.0, "B": 1.08e10, "te": 0.182, "tw": 0.148},
        predicted=0.0,
    )
    return replace(made, **changes)


def test_decisions_are_told_newest_first_with_their_numbers():
    bypass = entry(
        200.0,
        knob=Knob.LOADING,
        before="Auto",
        after="Bypass",
        reason=Why.TIER_TOO_SLOW,
        numbers={"bandwidthHigh": 1e9, "floor": 2e9},
        predicted=0.3,
        observed=-0.2,
        verdict=Verdict.ROLLED_BACK,
    )
    state = State(
        in_force={Knob.LOADING: "Bypass"},
        turned={Knob.LOADING: 200.0},
        history=(entry(100.0), bypass),
    )
    tuning = status(state=state).tuning
    assert tuning is not None
    assert (tuning.loading, tuning.last_change) == ("Bypass", "1970-01-01T00:03:20Z")
    assert [(each.knob, each.new) for each in tuning.history] == [
        ("Loading", "Bypass"),
        ("Model", "R=5.22e+04 s=4.84e+04 B=1.08e+10 Te=0.182 Tw=0.148"),
    ]
    assert tuning.reason == tuning.history[0].reason
    assert tuning.reason == (
        "TierTooSlow: bandwidthHigh 1e+09, floor 2e+09; predicted gain 30%; measured gain -20%; "
        "RolledBack"
    )
    assert from_text(tuning.state) == state


def test_the_state_is_bounded_and_the_history_goes_on_where_it_ends():
    state = State(history=tuple(entry(1000.0 + n, before=entry(0).after) for n in range(20)))
    stored = KVServingStatus(
        tuning=TuningStatus(
            history=tuple(
                TuningChange(time=f"1970-01-01T00:0{n}:00Z", knob="Model") for n in (3, 2, 1)
            )
        )
    )
    tuning = status(stored, state=replace(state, history=state.history[:18])).tuning
    assert tuning is not None
    assert tuning.state is not None
    assert len(tuning.state) <= 8192
    assert [each.time[14:16] for each in tuning.history] == ["16"] * 18 + ["03", "02"]
    kept = from_text(tuning.state).history
    assert kept == state.history[18 - len(kept) : 18]
    assert len(kept) > 10


@pytest.mark.parametrize("part", [0.0, 0.4, 0.6, 0.999])
def test_a_successor_has_no_decision_twice_in_its_history(part: float):
    state = State(turned={Knob.MODEL: 100 + part}, history=(entry(100 + part),))
    first = status(state=state)
    assert first.tuning is not None
    after = status(first, state=from_text(first.tuning.state)).tuning
    assert after == first.tuning


def test_what_every_look_changes_is_in_no_status():
    state = State(asked={Knob.MODEL: 1}, probed=5.0)
    assert status(state=state) == status(state=State(probed=99.0))


@pytest.mark.parametrize("text", [None, "", "[", "{}", "x" * 9000, "[" * 8000, '{"turned": 1}'])
def test_a_state_that_is_none_begins_anew(text: str | None):
    assert from_text(text) == State()


def test_a_decision_is_written_at_once_and_told():
    stored = status()
    state = State(in_force={Knob.LOADING: "Bypass"}, turned={Knob.LOADING: 200.0})
    fresh = status(stored, state=state)
    assert decide(stored, fresh, written_at=NOW, now=NOW).write
    [told] = decisions(measured(news=(News(recommended=False, message="Loading: …"),)))
    assert (told.reason, told.type, told.message) == (Reason.TUNED, "Normal", "Loading: …")
    [told] = decisions(measured(news=(News(recommended=True, message="m"),)))
    assert told.reason is Reason.TUNING_RECOMMENDED
    assert decisions(None) == ()
