"""Does the tier pay, in the published deployments and at every edge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.cost import (
    Load,
    Operation,
    Pays,
    PaysIn,
    break_even_tokens,
    gain,
    verdict,
)
from tests.unit.cost.test_model import PAPER, TOKENS, model


def used(tokens: float, arrivals: float = 1.21, busy: float | None = None) -> Operation:
    return Operation(hit_tokens=tokens, prompt_tokens=tokens, arrivals=arrivals, busy=busy)


def test_eight_instances_pay_in_capacity_once_the_engine_is_busy():
    saved = gain(PAPER, TOKENS)
    assert saved.engine_seconds == pytest.approx(0.132, abs=0.001)
    assert saved.ttft_seconds == pytest.approx(-0.09, abs=0.005)
    assert saved.worth_reading
    assert verdict(PAPER, used(TOKENS, busy=0.0)).pays is Pays.NO
    # At the paper's 1.21 prompts a second an engine without the tier is busy 38 %: as good as even.
    paper = verdict(PAPER, used(TOKENS))
    assert paper.load.busy == pytest.approx(0.38, abs=0.001)
    assert (paper.pays, paper.pays_in) == (Pays.TIE, PaysIn.CAPACITY)
    busy = verdict(PAPER, used(TOKENS, busy=0.8))
    assert (busy.pays, busy.pays_in) == (Pays.YES, PaysIn.CAPACITY)


def test_long_prompts_pay_in_latency():
    long = verdict(PAPER, used(100_000, arrivals=0.1, busy=0.0))
    assert (long.pays, long.pays_in) == (Pays.YES, PaysIn.LATENCY)
    assert long.gain.ttft_seconds > 0


def test_one_instance_does_not_pay_and_an_overloaded_one_never_says_yes():
    one = verdict(model(bandwidth=1.71e9), used(TOKENS))
    assert (one.pays, one.pays_in) == (Pays.NO, PaysIn.NEITHER)
    over = verdict(model(bandwidth=0.85e9), used(TOKENS, busy=0.95))
    assert over.tier_utilization > 1
    assert over.load_seconds == math.inf
    assert (over.pays, over.pays_in) == (Pays.NO, PaysIn.NEITHER)


def test_the_break_even_length_is_a_tie():
    edge = break_even_tokens(PAPER)
    assert verdict(PAPER, used(edge, arrivals=0, busy=0.0)).pays is Pays.TIE
    longer = verdict(PAPER, used(edge * 1.5, arrivals=0, busy=0.0))
    assert longer.pays is Pays.YES
    assert verdict(PAPER, used(edge * 0.6, arrivals=0, busy=0.0)).pays is Pays.NO


def test_tokens_that_are_computed_anyway_make_the_engine_busy_and_nothing_else():
    partly = Operation(hit_tokens=8_000, prompt_tokens=32_000, arrivals=1.0)
    found = verdict(PAPER, partly)
    assert found.load.busy == pytest.approx(32_000 / 52_200)
    assert found.recompute_seconds == pytest.approx(8_000 / 52_200 / found.load.idle_share)


@given(
    tokens=st.integers(1, 400_000),
    arrivals=st.floats(0, 100),
    busy=st.one_of(st.none(), st.floats(0, 1)),
    bandwidth=st.floats(1e8, 1e11),
)
def test_what_is_said_hangs_together(
    tokens: int, arrivals: float, busy: float | None, bandwidth: float
):
    there = model(bandwidth=bandwidth)
    found = verdict(there, used(tokens, arrivals, busy))
    if found.tier_utilization >= 1:
        assert found.pays is Pays.NO
    assert (found.pays is Pays.NO) <= (found.pays_in is PaysIn.NEITHER)
    if found.pays_in is PaysIn.LATENCY:
        # A hit that is quicker on an idle engine holds it less than computing would.
        assert found.gain.engine_seconds > 0
        assert tokens >= break_even_tokens(there)
    if found.pays is Pays.YES:
        assert found.gain.ttft_seconds > 0
        assert tokens > break_even_tokens(there, Load(busy=found.load.busy))
