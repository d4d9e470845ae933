"""The cost model against the paper's numbers and the design's, and the decision per request."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store.modes import Requests
from kvserving_sharded_store.policy import (
    Decision,
    Load,
    Mode,
    Model,
    Reason,
    Rules,
    Wanted,
    break_even,
    deadline,
    decide,
    load_cost,
    recompute_cost,
    utilisation,
)

PAPER = Model(
    rate=52_200, token_bytes=48_400, bandwidth=10.76e9, engine_fixed=0.182, request_fixed=0.148
)
IDLE = Load()


def choose(rules: Rules, tokens: int, load: Load = IDLE, **flags: bool) -> Decision:
    return decide(
        rules,
        tokens,
        load,
        bypassed=flags.get("bypassed", False),
        closed=flags.get("closed", False),
    )


def test_break_even_bandwidth_of_the_paper() -> None:
    assert PAPER.needed_bandwidth == pytest.approx(2.53e9, rel=0.005)


@pytest.mark.parametrize(
    ("busy", "tokens"), [(0, 22_500), (0.5, 15_100), (0.8, 11_600), (0.95, 10_000)]
)
def test_break_even_length_falls_with_load(busy: float, tokens: int) -> None:
    assert break_even(PAPER, Load(busy=busy)) == pytest.approx(tokens, rel=0.01)


def test_limits_of_the_break_even_length() -> None:
    # At infinite bandwidth the paper's R·T0; with a saturated engine R·Te.
    fast = Model(52_200, 48_400, 1e18, 0.182, 0.148)
    assert break_even(fast, IDLE) == pytest.approx(17_226, rel=0.001)
    assert break_even(PAPER, Load(busy=1.0)) == pytest.approx(52_200 * 0.182, rel=0.02)


def test_below_break_even_bandwidth_no_length_is_worth_it() -> None:
    slow = Model(52_200, 48_400, 2.5e9, 0.182, 0.148)
    assert break_even(slow, IDLE) == math.inf
    assert choose(Rules(model=slow), 200_000).reason is Reason.DEARER
    # A busy engine makes the same tier worth reading again.
    assert break_even(slow, Load(busy=0.5)) < 50_000


def test_predictions_of_the_paper_for_16k() -> None:
    assert 16_390 * PAPER.token_bytes == pytest.approx(0.793e9, rel=0.001)
    one = Model(52_200, 48_400, 1.71e9, 0.182, 0.148)
    assert load_cost(one, 16_390, IDLE) == pytest.approx(0.79, abs=0.01)
    assert load_cost(PAPER, 16_390, IDLE) == pytest.approx(0.40, abs=0.01)
    assert recompute_cost(PAPER, 16_390, IDLE) == pytest.approx(0.31, abs=0.01)
    sustained = Model(52_200, 48_400, 0.85e9, 0.182, 0.148)
    assert utilisation(sustained, 16_390, 1.21) == pytest.approx(1.13, abs=0.005)
    assert utilisation(PAPER, 16_390, 1.21) == pytest.approx(0.09, abs=0.002)


@given(tokens=st.integers(1, 400_000), owed=st.floats(0, 1e11), bandwidth=st.floats(1e8, 1e11))
def test_on_an_idle_engine_the_decision_is_the_break_even_length(
    tokens: int, owed: float, bandwidth: float
) -> None:
    model, load = Model(52_200, 48_400, bandwidth, 0.182, 0.148), Load(owed=owed)
    edge = break_even(model, load)
    if math.isfinite(edge) and abs(tokens - edge) < 1e-6 * edge:
        return
    decision = choose(Rules(model=model), tokens, load)
    assert (decision.mode is Mode.ASYNC) == (tokens > edge)
    assert decision.load_seconds is not None
    assert decision.recompute_seconds is not None


@given(
    tokens=st.integers(1, 400_000),
    more=st.integers(0, 400_000),
    load=st.builds(
        Load,
        busy=st.floats(0, 1),
        met=st.none() | st.floats(0, 1),
        arrivals=st.floats(0, 100),
        owed=st.floats(0, 1e11),
    ),
    bandwidth=st.floats(1e8, 1e11),
)
def test_what_is_longer_than_a_prompt_that_is_loaded_is_loaded(
    tokens: int, more: int, load: Load, bandwidth: float
) -> None:
    rules = Rules(model=Model(52_200, 48_400, bandwidth, 0.182, 0.148))
    if choose(rules, tokens, load).mode is Mode.ASYNC:
        assert choose(rules, tokens + more, load).mode is Mode.ASYNC


def test_bytes_already_owed_shed_loads() -> None:
    assert choose(Rules(model=PAPER), 30_000).mode is Mode.ASYNC
    assert choose(Rules(model=PAPER), 30_000, Load(owed=20e9)).mode is Mode.BYPASS


@pytest.mark.parametrize(
    ("rules", "tokens", "flags", "mode", "reason"),
    [
        (Rules(), 256, {}, Mode.ASYNC, Reason.UNMEASURED),
        (Rules(), 0, {}, Mode.BYPASS, Reason.NOTHING),
        (Rules(min_tokens=512), 256, {}, Mode.BYPASS, Reason.SHORT),
        (Rules(min_tokens=512), 512, {}, Mode.ASYNC, Reason.UNMEASURED),
        (Rules(wanted=Wanted.SYNC, model=PAPER), 256, {}, Mode.SYNC, Reason.FORCED),
        (Rules(wanted=Wanted.ASYNC, model=PAPER), 256, {}, Mode.ASYNC, Reason.FORCED),
        (Rules(wanted=Wanted.ASYNC, min_tokens=512), 256, {}, Mode.BYPASS, Reason.SHORT),
        (Rules(wanted=Wanted.BYPASS), 90_000, {}, Mode.BYPASS, Reason.FORCED),
        (Rules(model=PAPER), 90_000, {"bypassed": True}, Mode.BYPASS, Reason.BYPASSED),
        (Rules(wanted=Wanted.ASYNC), 90_000, {"bypassed": True}, Mode.ASYNC, Reason.FORCED),
        (Rules(wanted=Wanted.ASYNC), 90_000, {"closed": True}, Mode.BYPASS, Reason.CLOSED),
        (Rules(model=PAPER), 16_390, {}, Mode.BYPASS, Reason.DEARER),
        (Rules(model=PAPER), 24_000, {}, Mode.ASYNC, Reason.CHEAPER),
    ],
)
def test_decisions(
    rules: Rules, tokens: int, flags: dict[str, bool], mode: Mode, reason: Reason
) -> None:
    decision = choose(rules, tokens, **flags)
    assert (decision.mode, decision.reason) == (mode, reason)


def test_a_load_never_waits_longer_than_recomputing_takes() -> None:
    assert deadline(Rules(model=PAPER), 52_200, IDLE, 10.0) == pytest.approx(1.0)
    assert deadline(Rules(model=PAPER), 5_220_000, IDLE, 10.0) == 10.0
    assert deadline(Rules(), 1, IDLE, 10.0) == 10.0


@pytest.mark.parametrize(
    "numbers",
    [(0, 1, 1, 0, 0), (1, 0, 1, 0, 0), (1, 1, 0, 0, 0), (1, 1, 1, -1, 0), (1, 1, math.inf, 0, 0)],
)
def test_impossible_models_are_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="> 0"):
        Model(*numbers)


def test_a_request_keeps_the_decision_of_its_first_lookup() -> None:
    requests = Requests()
    rules = [Rules(wanted=Wanted.ASYNC)]
    first = requests.fix("a", lambda: choose(rules[0], 512))
    rules[0] = Rules(wanted=Wanted.BYPASS)
    assert requests.fix("a", lambda: choose(rules[0], 512)) is first
    assert requests.fix("b", lambda: choose(rules[0], 512)).mode is Mode.BYPASS
    requests.forget("a")
    assert requests.get("a") is None
    assert requests.fix("a", lambda: choose(rules[0], 512)).mode is Mode.BYPASS
    assert sorted(requests) == ["a", "b"]
    assert len(requests) == 2
