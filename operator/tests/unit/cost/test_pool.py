"""Waits behind a router: the textbook's values, and the simulation."""

import math
from collections.abc import Callable
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvserving_operator.cost import (
    ONE,
    Load,
    Operation,
    Pays,
    Pool,
    Routing,
    break_even_tokens,
    load_seconds,
    recompute_seconds,
    stretch,
    verdict,
)
from kvserving_operator.simulation.scenario import Policy, Scenario
from kvserving_operator.simulation.trace import Request, Segment
from kvserving_operator.simulation.world import simulate
from tests.unit.cost.test_model import PAPER, TOKENS

RATE = 52_200.0
ROUTES = {
    Routing.CHANCE: Policy.RANDOM,
    Routing.TURN: Policy.ROUND_ROBIN,
    Routing.FREEST: Policy.STICKY_LEAST_LOADED,
    Routing.FREER_OF_TWO: Policy.POWER_OF_TWO,
}
LENGTHS: dict[str, Callable[[Random], int]] = {
    "alike": lambda chance: 16_000,
    "9k to 200k": lambda chance: round(chance.uniform(9_000, 200_000)),
    "by chance": lambda chance: 1 + round(chance.expovariate(1 / 16_000)),
}
WITHIN = 0.22
"""Of the simulated mean time to the first token: what docs/tuning.md promises."""
shares = st.floats(0.0, 0.99)
pools = st.builds(
    Pool,
    replicas=st.integers(1, 200),
    routing=st.sampled_from(Routing),
    gap_variation=st.floats(0.0, 4.0),
    work_variation=st.floats(0.0, 4.0),
)


@given(shares, st.sampled_from(Routing))
def test_one_replica_is_the_cost_model_of_one_engine(busy: float, routing: Routing):
    assert stretch(ONE, busy) == pytest.approx(1 / (1 - busy))
    assert stretch(Pool(routing=routing), busy) == pytest.approx(1 / (1 - busy))
    assert Load(busy=busy).pool == ONE


@pytest.mark.parametrize(
    ("servers", "busy", "wait"),
    # Erlang's C of published tables: c = 2, 4 at ρ = .8 wait with probability .7111 and .5964.
    [(2, 0.8, 0.7111 / 0.4), (4, 0.8, 0.5964 / 0.8), (1, 0.5, 1.0), (2, 0.5, 1 / 3)],
)
def test_one_queue_for_all_is_erlangs(servers: int, busy: float, wait: float):
    pool = Pool(replicas=servers, routing=Routing.FREEST)
    assert stretch(pool, busy) - 1 == pytest.approx(wait, rel=1e-3)


def test_prompts_that_are_alike_wait_half_as_long_as_those_by_chance():
    """Pollaczek and Khinchine: M/D/1 against M/M/1."""
    assert stretch(Pool(work_variation=0.0), 0.8) - 1 == pytest.approx(2.0)


def still(work: float) -> Pool:
    """Prompts that come like a clock."""
    return Pool(gap_variation=0.0, work_variation=work, replicas=3, routing=Routing.TURN)


def test_a_clock_and_equal_work_never_wait():
    assert stretch(still(0.0), 0.9) == 1.0


@given(pools, shares, shares)
@example(still(4.2e-143), 0.0, 2.3e-309)
@example(still(5e-324), 5e-324, 0.99)
def test_waits_are_finite_and_grow_with_load(pool: Pool, one: float, other: float):
    low, high = sorted((one, other))
    assert 1.0 <= stretch(pool, low) <= stretch(pool, high) * (1 + 1e-9)
    assert math.isfinite(stretch(pool, high))


@given(shares.filter(lambda busy: busy > 0.01), st.integers(2, 100))
def test_the_better_a_router_knows_the_less_a_prompt_waits(busy: float, replicas: int):
    freest, two, chance = (
        stretch(Pool(replicas=replicas, routing=routing), busy)
        for routing in (Routing.FREEST, Routing.FREER_OF_TWO, Routing.CHANCE)
    )
    assert freest <= two * (1 + 1e-9) <= chance * (1 + 2e-9)
    turn = stretch(Pool(replicas=replicas, routing=Routing.TURN), busy)
    assert turn <= chance * (1 + 1e-9)


@pytest.mark.parametrize(
    ("field", "value"), [("replicas", 0), ("gap_variation", -1.0), ("work_variation", math.nan)]
)
def test_what_cannot_be_is_refused_by_name(field: str, value: float):
    with pytest.raises(ValueError, match=field):
        Pool(**{field: value})  # type: ignore[arg-type]


def test_all_costs_are_those_of_the_pool():
    load = Load(busy=0.8, pool=Pool(replicas=4, routing=Routing.FREEST))
    wait = 1.7455
    assert recompute_seconds(PAPER, TOKENS, load) == pytest.approx(TOKENS / RATE * wait, rel=1e-3)
    moved = TOKENS * 48_400 / 10.76e9
    assert load_seconds(PAPER, TOKENS, load) == pytest.approx(
        0.182 * wait + 0.148 + moved, rel=1e-3
    )
    edge = break_even_tokens(PAPER, load)
    assert load_seconds(PAPER, edge, load) == pytest.approx(recompute_seconds(PAPER, edge, load))


def test_four_replicas_are_not_told_that_hits_are_quicker_before_they_are():
    """By the simulation four of them at u .8 answer in .42 s computing and .56 s loading."""
    used = Operation(
        hit_tokens=TOKENS,
        prompt_tokens=TOKENS,
        arrivals=4 * 0.8 * RATE / TOKENS,
        pool=Pool(replicas=4, routing=Routing.FREEST, work_variation=0.0),
    )
    said = verdict(PAPER, used)
    assert said.load.busy == pytest.approx(0.8)
    assert said.recompute_seconds == pytest.approx(0.42, rel=0.05)
    assert said.load_seconds == pytest.approx(0.56, rel=0.05)
    assert said.pays is Pays.NO


def simulated(mix: str, replicas: int, busy: float, routing: Routing) -> tuple[float, float]:
    """The simulated mean time to the first token, and what the model says."""
    chance = Random(7)  # noqa: S311
    amount = max(20_000, min(100_000, round(100 * replicas / (1 - busy) ** 2)))
    tokens = [LENGTHS[mix](chance) for _ in range(amount)]
    gaps = [chance.expovariate(1.0) for _ in tokens]
    mean = fmean(tokens)
    scale = sum(tokens) / (replicas * busy * RATE) / sum(gaps)
    now, sent = 0.0, []
    for number, (gap, count) in enumerate(zip(gaps, tokens, strict=True)):
        now += gap * scale
        sent.append(Request(offset=now, output_tokens=1, segments=(Segment(f"#{number}", count),)))
    settings = {"count": replicas, "tokensPerSecond": RATE}
    made = Scenario.model_validate(
        {"bytesPerToken": 1, "chunkTokens": 1 << 20, "engines": settings, "policy": ROUTES[routing]}
    )
    times = simulate(made, sent, seed=1).outcome.ttft[amount // 10 :]
    pool = Pool(replicas=replicas, routing=routing, work_variation=pvariance(tokens) / mean**2)
    return fmean(times), mean / RATE * stretch(pool, busy)


@pytest.mark.thorough
@pytest.mark.parametrize("routing", Routing)
@pytest.mark.parametrize("mix", LENGTHS)
@pytest.mark.parametrize(("replicas", "busy"), [(2, 0.5), (4, 0.8), (8, 0.8), (4, 0.9), (8, 0.2)])
def test_the_wait_is_the_simulated_one(mix: str, replicas: int, busy: float, routing: Routing):
    found, said = simulated(mix, replicas, busy, routing)
    assert said == pytest.approx(found, rel=WITHIN)


@pytest.mark.thorough
def test_one_engines_wait_is_far_from_that_of_four():
    """The negative control: what the model said before it knew of replicas."""
    found, _ = simulated("alike", 4, 0.8, Routing.FREEST)
    assert 3 * found < 16_000 / RATE / (1 - 0.8)
