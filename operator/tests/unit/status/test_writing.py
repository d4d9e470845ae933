"""When a changed status is worth a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.status import (
    LastWrites,
    Situation,
    Trouble,
    WriteDecision,
    compute,
    decide,
)

from .situations import CRASHING, NOW, STARTING, refusal, role, roles, situation, trouble

WRITE, NOTHING = WriteDecision(write=True), WriteDecision(write=False)
HALF = role(ready=1, current=1)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Stored:
    """A status that goes through the policy as through an API server; counts the writes."""

    def __init__(self) -> None:
        self.status = KVServingStatus()
        self.written_at: datetime | None = None
        self.writes = 0

    def offer(self, made: Situation, at: float) -> WriteDecision:
        previous = Situation(
            **{f: getattr(made, f) for f in made.__slots__} | {"previous": self.status}
        )
        new = compute(previous, now=after(at))
        decision = decide(self.status, new, written_at=self.written_at, now=after(at))
        if decision.write:
            self.status, self.written_at = new, after(at)
            self.writes += 1
        return decision


def started() -> Stored:
    stored = Stored()
    stored.offer(situation(roles(decode=STARTING, prefill=STARTING, router=STARTING)), 0)
    return stored


def ready() -> Stored:
    stored = Stored()
    stored.offer(situation(), 0)
    return stored


def test_the_first_status_is_written_at_once() -> None:
    assert Stored().offer(situation(roles(decode=STARTING)), 0) == WRITE


def test_an_unchanged_status_is_never_written() -> None:
    stored = ready()
    for at in (1, 100, 10_000):
        assert stored.offer(situation(), at) == NOTHING


def test_progress_is_coalesced_and_somebody_looks_again_in_time() -> None:
    stored = started()
    progress = situation(roles(decode=HALF, prefill=STARTING, router=STARTING))
    decision = stored.offer(progress, 10)
    assert decision == WriteDecision(write=False, look_again=20.0)
    assert stored.offer(progress, 30) == WRITE


@pytest.mark.parametrize("minutes", [0.3, 1.0, 2.0])
def test_a_start_with_steady_progress_is_at_most_three_writes_until_ready(minutes: float) -> None:
    stored = Stored()
    last = int(minutes * 60)
    for second in range(last):
        count = min(1, second % 2)
        stored.offer(
            situation(
                roles(
                    decode=role(ready=count, current=count),
                    prefill=STARTING,
                    router=role() if second > last // 2 else STARTING,
                )
            ),
            second,
        )
    stored.offer(situation(), last)
    assert stored.status.phase == "Ready"
    assert stored.writes <= 3


def test_half_an_hour_of_start_is_a_handful_of_writes() -> None:
    stored = started()
    for second in range(1, 1800, 3):
        count = second % 2
        stored.offer(situation(roles(decode=role(ready=count, current=count))), second)
    assert stored.writes <= 9


NOISE: dict[str, Callable[[int], Situation]] = {
    "pods too many in the tier": lambda n: situation(roles(valkey=role(replicas=3 + n))),
    "pods too many in a role": lambda n: situation(roles(decode=role(replicas=3 + n))),
    "how many fail": lambda n: situation(roles(decode=replace(CRASHING, problems=3 + n))),
    "what a failure says": lambda n: situation(
        troubles=(Trouble(reason=Reason.APPLY_FAILED, message=f"{n} objects", stalled=False),)
    ),
    "what waits while suspended": lambda n: situation(suspended=True, pending=(f"Service x{n}",)),
    "which resources are taken": lambda n: situation(
        troubles=(Trouble(reason=Reason.NAME_CONFLICT, message=f"Service x{n}", stalled=True),)
    ),
}
"""What may change from pass to pass and is no news: everything but the number stays as it is."""


@pytest.mark.parametrize("kind", NOISE)
def test_steady_noise_is_at_most_twelve_writes_an_hour(kind: str) -> None:
    stored, numbers, before = ready(), Random(1), 0  # noqa: S311
    for second in range(0, 7200, 10):
        stored.offer(NOISE[kind](numbers.randrange(5)), second)
        if second < 3600:
            before = stored.writes
    assert 1 < before <= 15, "the first hour begins with quicker progress"
    assert 1 < stored.writes - before <= 12


@pytest.mark.parametrize(
    "made",
    [
        situation(roles(decode=STARTING)),
        situation(roles(valkey=STARTING)),
        situation(outcome=refusal(Reason.INVALID), generation=2),
        situation(generation=2),
        situation(troubles=(trouble(Reason.NAME_CONFLICT, stalled=True),)),
    ],
    ids=["ready flips", "tier lost", "refused", "new generation", "stalled"],
)
def test_what_somebody_acts_on_is_written_at_once(made: Situation) -> None:
    assert ready().offer(made, 1) == WRITE


def test_a_named_failure_is_written_at_once_and_once() -> None:
    stored = started()
    crashing: Any = situation(roles(decode=CRASHING, prefill=STARTING, router=STARTING))
    assert stored.offer(crashing, 1) == WRITE
    assert stored.offer(crashing, 2) == NOTHING


def test_recovery_and_the_end_of_the_work_are_written_at_once() -> None:
    stored = ready()
    stored.offer(situation(roles(decode=STARTING)), 1)
    assert stored.offer(situation(roles(valkey=role(draining=1))), 2) == WRITE
    assert stored.offer(situation(), 3) == WRITE


def test_a_clock_ahead_of_ours_does_not_postpone_for_good() -> None:
    stored = started()
    stored.written_at = after(86_400)
    decision = stored.offer(situation(roles(decode=HALF, prefill=STARTING)), 10)
    assert not decision.write
    assert decision.look_again is not None
    assert decision.look_again <= 300


def test_progress_goes_on_while_the_servers_clock_is_ahead_of_ours() -> None:
    """By its stamps alone the next count would be written when our clock gets there."""
    writes, ahead = LastWrites(), NOW + timedelta(days=1)
    assert writes.before("u", NOW, NOW) == NOW
    assert writes.before("u", None, NOW) is None
    assert writes.before("u", ahead, NOW) is None, "as good as never written"
    writes.note("u", NOW)
    assert writes.before("u", ahead, after(10)) == NOW
    assert writes.before("u", ahead, NOW - timedelta(hours=1)) is None, "our clock was set back"


def test_an_optional_api_that_comes_or_goes_is_told_at_once() -> None:
    stored = ready()
    assert stored.offer(situation(absent=("HTTPRoute (g/v1)",)), 60) == WRITE
    assert stored.offer(situation(absent=("HTTPRoute (g/v1)",)), 90) == NOTHING
    assert stored.offer(situation(absent=()), 120) == WRITE
