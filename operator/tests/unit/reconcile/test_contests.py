"""Repairs come at once, but a controller that insists is not raced."""

from __future__ import annotations

from kvserving_operator.reconcile.contests import BURST, INTERVAL, Contests


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_repairs_come_at_once_and_then_at_intervals() -> None:
    clock = Clock()
    contests = Contests(clock=clock)
    contests.wrote("u", "a")
    for _ in range(BURST):
        assert contests.may_write("u", "a")
        contests.wrote("u", "a")
    assert not contests.may_write("u", "a")
    assert contests.may_write("other", "a")
    clock.now += INTERVAL + 0.1
    assert contests.may_write("u", "a")
    contests.wrote("u", "a")
    assert not contests.may_write("u", "a")


def test_what_the_spec_changes_is_no_repair() -> None:
    contests = Contests(clock=Clock())
    for _ in range(BURST + 2):
        contests.wrote("u", "a")
    assert not contests.may_write("u", "a")
    assert contests.may_write("u", "b")


def test_calm_is_rewarded() -> None:
    clock = Clock()
    contests = Contests(clock=clock)
    for _ in range(BURST + 1):
        contests.wrote("u", "a")
    clock.now += 3600.0
    for _ in range(BURST):
        assert contests.may_write("u", "a")
        contests.wrote("u", "a")
    assert not contests.may_write("u", "a")
