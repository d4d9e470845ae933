"""Waiting for what is asserted: all of it in one look, and the last look told when it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stack.kubectl import KubectlError, NotInTimeError, Object, eventually, wait_says


def told(status: str, reason: str, *, generation: int = 2, message: str = "pod x-0") -> Object:
    """An object of generation 2 with one condition."""
    found = {"type": "Tier", "status": status, "reason": reason, "message": message}
    return {
        "metadata": {"generation": 2},
        "status": {"conditions": [{**found, "observedGeneration": generation}]},
    }


def looks(*seen: Object | None) -> Callable[[], Object | None]:
    """What each look finds; the last one stays."""
    left = list(seen)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_check_is_run_until_all_of_it_holds() -> None:
    left = [1, 2, 3]

    def check() -> int:
        number = left.pop(0)
        if number == 1:
            raise KubectlError("no answer")
        assert number == 3
        return number - 3

    assert eventually("it is three", check, timeout=5, every=0.01) == 0


def test_the_last_failure_is_told() -> None:
    def check() -> None:
        raise AssertionError("two is not three")

    with pytest.raises(NotInTimeError, match="three: not within 0 s; last seen: two is not three"):
        eventually("it is three", check, timeout=0.05, every=0.01)


def test_a_status_of_before_or_for_another_reason_is_not_taken() -> None:
    read = looks(
        None,
        {"metadata": {"generation": 2}},
        told("False", "Unreachable"),
        told("False", "Mismatch", generation=1),
        told("False", "Mismatch", message="pod x-1"),
        told("True", "Mismatch"),
        told("False", "Mismatch"),
    )
    found = wait_says(read, "Tier", "False", "Mismatch", mentions=["x-0"], timeout=30, every=0.01)
    assert found == told("False", "Mismatch")["status"]["conditions"][0]


def test_what_was_said_instead_is_told() -> None:
    read = looks(told("False", "Unreachable"))
    with pytest.raises(NotInTimeError, match=r"Tier is False Mismatch: .*'Unreachable'"):
        wait_says(read, "Tier", "False", "Mismatch", timeout=0.02, every=0.01)
