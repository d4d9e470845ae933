"""The cost model against the published numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.cost import (
    BUSIEST,
    Load,
    Model,
    break_even_tokens,
    floor_bandwidth,
    load_seconds,
    prefers_load,
    recompute_seconds,
    tier_utilization,
    tier_wait_seconds,
)

PAPER = Model(
    tokens_per_second=52_200,
    bytes_per_token=48_400,
    bandwidth=10.76e9,
    engine_fixed_seconds=0.182,
    request_fixed_seconds=0.148,
)
TOKENS = 16_390


def model(**changes: float) -> Model:
    fields = {name: getattr(PAPER, name) for name in Model.__slots__}
    return Model(**{**fields, **changes})


def test_break_even_bandwidth():
    assert PAPER.break_even_bandwidth == pytest.approx(2.53e9, rel=0.005)


def test_break_even_tokens_and_their_limit_at_any_bandwidth():
    assert PAPER.fixed_seconds == pytest.approx(0.33)
    assert break_even_tokens(PAPER) == pytest.approx(22_500, rel=0.003)
    assert break_even_tokens(model(bandwidth=1e20)) == pytest.approx(17_226, abs=1)
    assert PAPER.tokens_per_second * PAPER.fixed_seconds == pytest.approx(17_200, rel=0.002)


@pytest.mark.parametrize(
    ("busy", "tokens"), [(0, 22_500), (0.5, 15_100), (0.8, 11_600), (0.95, 10_000)]
)
def test_break_even_tokens_fall_with_load(busy: float, tokens: int):
    assert break_even_tokens(PAPER, Load(busy=busy)) == pytest.approx(tokens, rel=0.01)


def test_a_saturated_engine_loads_whatever_is_longer_than_r_te():
    limit = PAPER.tokens_per_second * PAPER.engine_fixed_seconds
    assert break_even_tokens(PAPER, Load(busy=1)) == pytest.approx(limit, rel=0.02)
    assert break_even_tokens(PAPER, Load(busy=7)) == break_even_tokens(PAPER, Load(busy=BUSIEST))


def test_a_hit_of_16k():
    assert TOKENS * PAPER.bytes_per_token == pytest.approx(0.793e9, rel=0.001)
    assert load_seconds(PAPER, TOKENS) == pytest.approx(0.40, abs=0.005)
    assert load_seconds(model(bandwidth=1.71e9), TOKENS) == pytest.approx(0.79, abs=0.005)
    assert recompute_seconds(PAPER, TOKENS) == pytest.approx(0.31, abs=0.005)


def test_utilization_of_one_instance_and_of_eight():
    slow = model(bandwidth=0.85e9)
    assert tier_utilization(slow, TOKENS, 1.21) == pytest.approx(1.13, abs=0.005)
    assert tier_wait_seconds(slow, TOKENS, 1.21) == math.inf
    assert tier_utilization(PAPER, TOKENS, 1.21) == pytest.approx(0.09, abs=0.002)
    assert tier_wait_seconds(PAPER, TOKENS, 1.21) < 0.004


def test_below_the_break_even_bandwidth_no_length_is_worth_it():
    slow = model(bandwidth=2.5e9)
    assert break_even_tokens(slow) == math.inf
    assert not prefers_load(slow, 10_000_000)
    assert break_even_tokens(slow, Load(busy=0.5)) < 50_000


def test_the_floor_of_bandwidth_falls_with_load():
    assert floor_bandwidth(PAPER) == PAPER.break_even_bandwidth
    assert floor_bandwidth(PAPER, Load(busy=0.5), 0.1) == pytest.approx(0.45 * 2.5265e9, rel=1e-4)
    assert floor_bandwidth(PAPER, Load(busy=3)) == 0


@given(tokens=st.integers(1, 400_000), owed=st.floats(0, 1e11), bandwidth=st.floats(1e8, 1e11))
def test_on_an_idle_engine_the_decision_is_the_break_even_length(
    tokens: int, owed: float, bandwidth: float
):
    there, load = model(bandwidth=bandwidth), Load(owed_bytes=owed)
    edge = break_even_tokens(there, load)
    if abs(tokens - edge) > 1:
        assert prefers_load(there, tokens, load) is (tokens > edge)


LOADS = st.builds(
    Load,
    busy=st.floats(0, 1),
    met=st.none() | st.floats(0, 1),
    arrivals=st.floats(0, 100),
    owed_bytes=st.floats(0, 1e11),
)


@given(
    tokens=st.integers(1, 400_000),
    more=st.integers(0, 400_000),
    load=LOADS,
    bandwidth=st.floats(1e8, 1e11),
)
def test_what_is_longer_than_a_prompt_that_is_loaded_is_loaded(
    tokens: int, more: int, load: Load, bandwidth: float
):
    there = model(bandwidth=bandwidth)
    if prefers_load(there, tokens, load):
        assert prefers_load(there, tokens + more, load)


@given(first=st.floats(0, 0.98), more=st.floats(0, 0.5), owed=st.floats(0, 1e9))
def test_a_busier_engine_loads_shorter_prompts_and_a_busier_tier_longer_ones(
    first: float, more: float, owed: float
):
    calm = break_even_tokens(PAPER, Load(busy=first))
    assert break_even_tokens(PAPER, Load(busy=first + more)) <= calm * (1 + 1e-9)
    assert break_even_tokens(PAPER, Load(busy=first, owed_bytes=owed)) >= calm * (1 - 1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
@pytest.mark.parametrize("name", ["tokens_per_second", "bytes_per_token", "bandwidth"])
def test_impossible_rates_are_refused_by_name(name: str, value: float):
    with pytest.raises(ValueError, match=f"{name} is .*> 0"):
        model(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.001])
@pytest.mark.parametrize("name", ["engine_fixed_seconds", "request_fixed_seconds"])
def test_impossible_times_are_refused_by_name(name: str, value: float):
    with pytest.raises(ValueError, match=f"{name} is .*≥ 0"):
        model(**{name: value})
