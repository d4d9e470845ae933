"""Noise around every threshold, in many seeds: at most one change of a knob in its dwell."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from kvserving_operator.tuner import Facts, Knob, Reason, Settings, State
from tests.unit.tuner.plant import APPLY, CALM, HOT, STOCK, Run, known, number, slow

SEEDS = 500
FEW = 2
INTERVALS = 120
NOISE = 0.15
TAKEN_BACK = (115, 121)


@dataclass(frozen=True)
class Edge:
    """A threshold, and facts that lie on it but for the noise."""

    settings: Settings
    facts: Callable[[Callable[[float], float]], Facts]
    in_force: tuple[tuple[Knob, object], ...] = ()


def floor(noisy: Callable[[float], float]) -> Facts:
    """B on the floor below which the tier is bypassed, at u = .5."""
    return replace(slow(10.76e9), bandwidth=number(noisy(2.5265e9 * 0.5 * 0.95)))


def back(noisy: Callable[[float], float]) -> Facts:
    return replace(slow(10.76e9), bandwidth=number(noisy(2.5265e9 * 0.5)))


def moved(noisy: Callable[[float], float]) -> Facts:
    """B a tenth below what was pushed."""
    return replace(CALM, known=known(bandwidth=noisy(10.76e9 * 0.9)))


def threshold(noisy: Callable[[float], float]) -> Facts:
    """A hit that costs a fifth more than computing it, with HOT that asks for changes besides."""
    model = known(engine=noisy(0.175), bandwidth=noisy(10.76e9), rate=noisy(52_200))
    return replace(hot_full(noisy), known=model, first_token_seconds=noisy(0.6))


def breakers(noisy: Callable[[float], float]) -> Facts:
    return replace(CALM, open_breakers=min(1.0, noisy(0.5)))


def hot_full(noisy: Callable[[float], float]) -> Facts:
    hot = replace(
        HOT,
        occupancy=min(1.0, noisy(0.9)),
        failed_admissions=max(0.0, noisy(1.0) - 1.0),
        prefix_tokens=noisy(272_000),
        step_seconds=noisy(0.03),
    )
    return replace(CALM, hot=hot)


def hot_unused(noisy: Callable[[float], float]) -> Facts:
    return replace(CALM, hot=replace(HOT, occupancy=noisy(0.5), prefix_tokens=noisy(220_000)))


def cold_short(noisy: Callable[[float], float]) -> Facts:
    hot = replace(
        HOT,
        preemptions=max(0.0, noisy(1.0) - 1.0),
        prefix_tokens=noisy(227_000),
        cold_free_low=0.0,
        step_seconds=noisy(0.03),
    )
    return replace(CALM, hot=hot)


def worse(noisy: Callable[[float], float]) -> Facts:
    """A cost on the edge of being worse, after changes that are asked for again and again."""
    return replace(slow(noisy(9e9)), first_token_seconds=noisy(0.6) * 1.15)


HOT_ON = replace(APPLY, hot=True)
AT_30 = ((Knob.HOT_PERCENT, 30.0),)
STARTED = (*AT_30, (Knob.MIN_TOKENS, 0.0))
EDGES = {
    "floor of bandwidth": Edge(APPLY, floor),
    "way out of a bypass": Edge(APPLY, back, ((Knob.LOADING, "Bypass"),)),
    "model moved": Edge(APPLY, moved),
    "gain of a restart": Edge(replace(STOCK, hot=True), threshold, STARTED),
    "half of the breakers": Edge(APPLY, breakers),
    "HOT full": Edge(HOT_ON, hot_full, AT_30),
    "HOT unused": Edge(HOT_ON, hot_unused, AT_30),
    "COLD short": Edge(HOT_ON, cold_short, AT_30),
    "worse or not": Edge(APPLY, worse),
}


def changes(edge: Edge, seed: int) -> Run:
    rng = random.Random(seed)  # noqa: S311
    run = Run(settings=edge.settings, state=State(in_force=dict(edge.in_force)))  # type: ignore[arg-type]
    for _ in range(INTERVALS):
        run.step(edge.facts(lambda value: max(0.0, value * rng.gauss(1, NOISE))))
    return run


def is_calm(edge: Edge, seed: int) -> bool:
    """No knob twice within its dwell, and never two knobs within one."""
    run = changes(edge, seed)
    times = [at for at, _, _ in run.changes]
    gaps = [b - a for a, b in pairwise(times)]
    settings = edge.settings
    dwells = {Knob.MIN_TOKENS: settings.restart_dwell_seconds}
    return all(gap >= dwells.get(knob, settings.dwell_seconds) for knob, gap in run.gaps()) and all(
        gap >= settings.dwell_seconds for gap in gaps
    )


@pytest.mark.parametrize("name", EDGES)
def test_noise_turns_a_knob_at_most_once_in_its_dwell(name: str):
    assert all(is_calm(EDGES[name], seed) for seed in range(FEW))


def test_a_change_that_was_taken_back_settles_before_another_knob_is_turned():
    """Seeds in which a restart is taken back while HOT asks for a change."""
    edge = EDGES["gain of a restart"]
    for seed in TAKEN_BACK:
        entries = changes(edge, seed).state.history
        assert Reason.WORSE in {e.reason for e in entries if e.knob is Knob.MIN_TOKENS}
        assert is_calm(edge, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("name", EDGES)
def test_the_same_in_500_seeds(name: str):
    assert all(is_calm(EDGES[name], seed) for seed in range(SEEDS))


def test_the_noise_does_reach_the_thresholds():
    """Else the tests above would pass with a tuner that does nothing."""
    for name, edge in EDGES.items():
        assert changes(edge, 1).changes, name
    turned = changes(EDGES["gain of a restart"], 1).changes
    assert Knob.MIN_TOKENS in {knob for _, knob, _ in turned}
