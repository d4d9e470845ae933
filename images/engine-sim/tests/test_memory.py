"""A slow leak is seen, noise and warm-up are not taken for one."""

# ruff: noqa: S311  noise is no secret

from __future__ import annotations

import os
import random

import pytest
from memory import growth, own, slope, summary

SECONDS = 1800.0


def run(leak: float, seed: int = 1) -> list[tuple[float, int]]:
    """Samples of 100 MB with noise of 1 %, a warm-up, and so many bytes more per second."""
    chance = random.Random(seed)
    found = []
    for at in range(0, int(SECONDS), 5):
        warm = 20e6 * min(1.0, at / 400)
        found.append((float(at), int(80e6 + warm + leak * at + chance.gauss(0, 1e6))))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_growth_is_that_of_the_leak_alone(seed: int) -> None:
    assert abs(growth(run(0, seed), SECONDS)) < 0.003
    # 1 MB a minute on 100 MB is 20 % in the 20 minutes after the warm-up.
    assert growth(run(1e6 / 60, seed), SECONDS) == pytest.approx(0.2, abs=0.06)
    assert growth(run(1e6 / 600, seed), SECONDS) > 0.01


def test_a_step_and_outliers_are_no_slope() -> None:
    steady = [(float(at), 100.0) for at in range(100)]
    assert slope(steady) == 0
    assert slope([*steady[:50], (50.0, 900.0), *steady[51:]]) == 0
    assert slope([(float(at), 3.0 * at) for at in range(50)]) == 3


def test_a_summary_names_start_warm_and_end() -> None:
    samples = [(float(at), 10_000_000 + at) for at in range(0, 1800, 5)]
    assert summary({"front": samples}, SECONDS)["front"] == {
        "megabytes": [10.0, 10.0, 10.0],
        "growth": pytest.approx(0.00012, abs=1e-5),
    }
    assert own(os.getpid()) > 5_000_000
