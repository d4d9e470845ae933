"""How close the fit comes, in many seeds: 20 % noise, 5 % outliers, drifting arrivals."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kvserving_operator.fit import EngineRecords, Fit, Known, Recent, estimate, observe
from kvserving_operator.fit.fitting import WARM_UP
from tests.unit.fit.workload import MIXES, PAPER_MIX, Workload

SEEDS = 500
FEW = 10
BATCH = 10
LOADS = 200
STEPS = 200


@dataclass
class Run:
    """A workload and what has been made of it so far."""

    workload: Workload
    fit: Fit

    def loads(self, amount: int) -> None:
        for start in range(0, amount, BATCH):
            recent = Recent(loads=tuple(self.workload.loads(min(BATCH, amount - start))))
            self._take(recent)

    def steps(self, amount: int) -> None:
        self._take(Recent(steps=tuple(self.workload.steps(amount))))

    def _take(self, recent: Recent) -> None:
        engine = EngineRecords(start_id="a", recent=recent)
        self.fit = observe(self.fit, [engine], revision="r1", now=0.0)

    @property
    def known(self) -> Known:
        return estimate(self.fit, now=0.0)


def run(seed: int, mix: str = PAPER_MIX) -> Run:
    return Run(Workload(seed=seed, mix=mix), Fit(revision="r1"))


def close(number: object, truth: float, within: float) -> bool:
    value = getattr(number, "value", None)
    return value is not None and abs(value / truth - 1) <= within


def share(seeds: int, right: Callable[[int], bool]) -> float:
    return sum(right(seed) for seed in range(seeds)) / seeds


def settled(seed: int, mix: str) -> bool:
    made = run(seed, mix)
    made.loads(WARM_UP + LOADS)
    made.steps(WARM_UP + STEPS)
    truth, known = made.workload.truth, made.known
    return (
        close(known.bandwidth, truth.bandwidth, 0.05)
        and close(known.engine_fixed_seconds, truth.engine_fixed, 0.10)
        and close(known.request_fixed_seconds, truth.request_fixed, 0.10)
        and close(known.tokens_per_second, truth.rate, 0.05)
    )


def loads_until_right(seed: int, factor: float) -> int:
    """Loads after a step of B until its estimate is within 5 %."""
    made = run(seed)
    made.loads(WARM_UP + LOADS)
    made.workload.truth.bandwidth *= factor
    for loads in range(BATCH, 20 * BATCH, BATCH):
        made.loads(BATCH)
        if close(made.known.bandwidth, made.workload.truth.bandwidth, 0.05):
            return loads
    return 1_000


@pytest.mark.parametrize("mix", MIXES)
def test_all_numbers_are_close_after_200_loads(mix: str):
    assert share(FEW, lambda seed: settled(seed, mix)) >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("mix", MIXES)
def test_all_numbers_are_close_in_500_seeds(mix: str):
    assert share(SEEDS, lambda seed: settled(seed, mix)) >= 0.95


@pytest.mark.parametrize("factor", [0.16, 0.5, 2.0])
def test_a_step_of_bandwidth_is_followed(factor: float):
    assert share(FEW, lambda seed: loads_until_right(seed, factor) <= 60) >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.16, 0.5, 0.7, 1.5, 2.0, 6.3])
def test_a_step_of_bandwidth_is_followed_in_500_seeds(factor: float):
    assert share(SEEDS, lambda seed: loads_until_right(seed, factor) <= 60) >= 0.95
