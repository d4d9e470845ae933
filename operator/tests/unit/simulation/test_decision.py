"""Load or recompute, request by request: against every fixed threshold, in hindsight."""

from typing import Any

import pytest

from kvserving_operator.simulation.shipped import scenario
from kvserving_operator.simulation.world import simulate

NEVER = 10**8
THRESHOLDS = (0, 4000, 8000, 11_000, 13_000, 16_000, 20_000, 25_000, NEVER)
MEAN_TOKENS = 21_250
"""Half of the prompts from 1,000 to 12,000 tokens, half of them from there to 60,000."""


def mean_ttft(utilization: float, requests: int, seed: int, **remote: Any) -> float:
    """All prompts are in the tier; ``utilization`` is the engine's if it recomputed them all."""
    changes = {
        "primed": {"remote": 1.0},
        "engines": {"local": {"bytes": 0}, "remote": {"lookupTimeoutSeconds": 1000, **remote}},
        "workload": {
            "requests": requests,
            "promptTokens": {"min": 1000, "median": 12_000, "max": 60_000},
            "arrivals": {
                "rate": utilization * 52_200 / MEAN_TOKENS,
                "variation": 1.0,
                "profile": [],
            },
        },
    }
    ttft = simulate(scenario({"extends": "table2-h4"}, changes), seed=seed).outcome.ttft
    return sum(ttft) / len(ttft)


@pytest.mark.parametrize(
    ("utilization", "requests"),
    [
        (0.8, 300),
        *(pytest.param(u, 2000, marks=pytest.mark.thorough) for u in (0.2, 0.8, 0.92, 0.97)),
    ],
)
def test_the_decision_is_as_good_as_the_best_threshold(utilization: float, requests: int) -> None:
    by_threshold = {
        least: mean_ttft(utilization, requests, 1, loading="Async", minTokens=least)
        for least in THRESHOLDS
    }
    decided = mean_ttft(utilization, requests, 1, loading="Auto")
    assert decided <= 1.05 * min(by_threshold.values())
    assert decided <= by_threshold[0]
    assert decided <= by_threshold[NEVER]
