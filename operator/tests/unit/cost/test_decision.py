"""The decision per request against the best fixed threshold in hindsight, in a FIFO simulation."""

import math

import pytest

from kvserving_operator.cost import Load, load_seconds, recompute_seconds
from tests.unit.cost.queueing import (
    MIXES,
    Policy,
    from_length,
    load_aware,
    mean_seconds,
    stream,
)
from tests.unit.cost.test_model import PAPER, model

BUSY = (0.2, 0.8, 0.92, 0.97)
THRESHOLDS = (0.0, *(2_000 * 1.25**step for step in range(21)), math.inf)
WITHIN = 1.05
NO_WORSE = 1.02


def against_thresholds(
    mix: str, busy: float, requests: int, policy: Policy, seed: int = 1
) -> tuple[float, ...]:
    """Cost of the policy, and of every threshold: the first loads all, the last none."""
    hits = stream(PAPER, mix, busy, requests, seed)
    fixed = (mean_seconds(PAPER, hits, from_length(least)) for least in THRESHOLDS)
    return (mean_seconds(PAPER, hits, policy), *fixed)


@pytest.mark.parametrize("busy", [0.2, 0.92])
def test_the_rule_is_close_to_the_best_threshold(busy: float):
    costs = against_thresholds("14.7k to 17.9k", busy, 800, load_aware(PAPER))
    assert costs[0] <= WITHIN * min(costs[1:])
    assert costs[0] <= costs[-1] * 1.01


@pytest.mark.thorough
@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("mix", MIXES)
def test_the_rule_is_close_to_the_best_threshold_in_every_mix(mix: str, busy: float):
    costs = against_thresholds(mix, busy, 6_000, load_aware(PAPER))
    always, never = costs[1], costs[-1]
    assert costs[0] <= WITHIN * min(costs[1:])
    # Until half a minute has gone by there is no u, λ and p to go by.
    assert costs[0] <= NO_WORSE * never
    assert costs[0] <= NO_WORSE * always


def own_wait_alone(tokens: int, load: Load) -> bool:
    return load_seconds(PAPER, tokens, load) < recompute_seconds(PAPER, tokens, load)


def test_what_a_request_costs_those_behind_it_counts():
    """The negative control: by its own wait alone it is worse where all lengths are near n*."""
    hits = stream(PAPER, "14.7k to 17.9k", 0.8, 3_000)
    selfish = mean_seconds(PAPER, hits, own_wait_alone)
    assert selfish > 1.03 * mean_seconds(PAPER, hits, from_length(THRESHOLDS[0]))
    assert mean_seconds(PAPER, hits, load_aware(PAPER)) < selfish


@pytest.mark.thorough
def test_a_slow_tier_is_left_alone_and_a_busy_one_sheds_loads():
    slow = model(bandwidth=0.85e9)
    hits = stream(slow, "14.7k to 17.9k", 0.38, 3_000)
    rule = mean_seconds(slow, hits, load_aware(slow))
    never = mean_seconds(slow, hits, from_length(math.inf))
    always = mean_seconds(slow, hits, from_length(0))
    assert rule <= 1.02 * never
    # ρ = 1.13: loading everything has no steady state.
    assert always > 20 * rule


def test_a_rule_that_does_not_see_load_is_far_off():
    """The negative control: thresholds of an idle engine recompute what a busy one must load."""
    idle = from_length(22_500)
    costs = against_thresholds("14.7k to 17.9k", 0.92, 800, idle)
    assert costs[0] > 2 * min(costs[1:])
