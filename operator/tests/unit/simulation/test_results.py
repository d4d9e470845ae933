"""Percentiles as numpy has them, and null for what nobody knows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.simulation.results import Outcome, document


def outcome(ttft: list[float]) -> Outcome:
    return Outcome(
        ttft=ttft,
        from_remote_share=None,
        gpu_utilization=None,
        timeouts=None,
        errors=2,
        tokens=300,
        seconds=10.0,
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_numpys(values: list[float]) -> None:
    ttft = document(outcome(values))["ttft"]
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        assert ttft[name] == pytest.approx(np.percentile(values, share))
    assert ttft["mean"] == pytest.approx(np.mean(values))


def test_thirds_are_by_order_of_sending() -> None:
    assert document(outcome([1, 1, 2, 3, 9, 9, 9]))["thirdsP50"] == [1, 3, 9]


def test_nothing_completed_is_null_and_not_zero() -> None:
    assert document(outcome([])) == {
        "ttft": {"p50": None, "p90": None, "p99": None, "max": None, "mean": None},
        "thirdsP50": [None, None, None],
        "fromL2Fraction": None,
        "gpuUtilization": None,
        "timeouts": None,
        "completed": 0,
        "errors": 2,
        "throughputTokensPerSecond": 30.0,
    }
