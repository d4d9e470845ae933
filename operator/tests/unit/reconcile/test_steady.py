"""What comes and goes at each look, and how often it is written."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime

import pytest

from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.observe.agents import Agents
from kvserving_operator.reconcile.steady import (
    CALM_LOOKS,
    FROZEN_LOOKS,
    OVER_LOOKS,
    Finding,
    Steady,
)
from kvserving_operator.status import decide
from kvserving_operator.tuner import Reason
from tests.unit.reconcile.test_tuning import MODEL, Fleet, Loop, agents, fleet

__all__ = ["agents", "fleet"]  # the fixtures

MOST_WRITES = 12
"""In an hour."""
WELL = Finding(reason=Reason.STEADY)
STALE = Finding(reason=Reason.FACTS_STALE)


def refused(*names: str) -> Finding:
    return Finding(reason=Reason.STEADY, refused=names)


def after(*found: Finding, start: Steady | None = None) -> Steady:
    steady = Steady() if start is None else start
    for each in found:
        steady = steady.after(each)
    return steady


def test_what_is_found_twice_is_told_and_stays_until_it_was_not_for_two_looks() -> None:
    steady = after(WELL, refused("a"))
    assert steady.told == WELL
    steady = after(refused("b"), start=steady)
    assert steady.told.refused == ("b",)
    steady = after(WELL, refused("a"), WELL, start=steady)
    assert steady.told.refused == ("b", "a"), "who was named stays named"
    assert after(WELL, start=steady).told == WELL


def test_each_time_it_comes_again_it_takes_longer_to_be_over() -> None:
    steady, waits = after(WELL), []
    for _ in range(5):
        steady = after(refused("a"), refused("a"), start=steady)
        for look in itertools.count(1):
            steady = after(WELL, start=steady)
            if not steady.told.kind:
                waits.append(look)
                break
    assert waits == [2, 4, 8, 12, 12]
    steady = after(*[WELL] * CALM_LOOKS, start=steady)
    assert steady.over == OVER_LOOKS[0], "an hour of calm is forgotten trouble"


def test_facts_that_cannot_be_used_from_the_start_are_told_after_three_looks() -> None:
    assert after(*[STALE] * (FROZEN_LOOKS - 1)).told.reason is None
    assert after(*[STALE] * FROZEN_LOOKS).told == STALE


RANDOM = random.Random(7)  # noqa: S311
SHORT = "SSSRRA" * 10
LONG = [
    "RA" * 30,
    "RRA" * 20,
    "RRAA" * 15,
    "RRRAAA" * 10,
    "SSSA" * 15,
    *("".join(RANDOM.choices("RA", k=60)) for _ in range(3)),
    *("".join(RANDOM.choices("RRSSA", k=60)) for _ in range(3)),
]
"""Looks: settings are refused, or accepted; facts are stale."""


class Hour:
    """An hour of looks as the pass writes the status."""

    def __init__(self, fleet: Fleet, agents: Agents) -> None:
        self._fleet = fleet
        self._loop = Loop(fleet, agents)
        self._loop.decided(Loading="Auto", Model=MODEL)
        self._written_at: datetime | None = None
        self.writes = 0

    async def look(self, how: str) -> None:
        fleet, loop = self._fleet, self._loop
        fleet.age = 1e6 if how == "S" else 1.0
        turn = loop.addresses[self.writes % 2]
        fleet.refuse = {turn: 503} if how == "R" else {}
        for address in loop.addresses:
            # Whoever starts anew is to be told again.
            fleet.restart(address)
        stored = loop.status
        await loop.look()
        now = datetime.fromtimestamp(1e9 + loop.clock, UTC)
        if decide(stored, loop.status, written_at=self._written_at, now=now).write:
            self.writes += 1
            self._written_at = now
        else:
            loop.status = stored

    @property
    def status(self) -> KVServingStatus:
        return self._loop.status


@pytest.mark.parametrize(
    "looks", [SHORT, *(pytest.param(looks, marks=pytest.mark.thorough) for looks in LONG)]
)
async def test_an_hour_of_what_comes_and_goes_costs_few_writes(
    fleet: Fleet, agents: Agents, looks: str
) -> None:
    hour = Hour(fleet, agents)
    for how in "AAAA":
        await hour.look(how)
    hour.writes = 0
    for how in looks:
        await hour.look(how)
    assert hour.writes <= MOST_WRITES
    told = {c.type: c.reason for c in hour.status.conditions}
    assert told["TuningActive"] in {"Active", "SettingsRefused", "FactsStale"}


async def test_what_goes_on_is_told_and_its_end_too(fleet: Fleet, agents: Agents) -> None:
    hour, said = Hour(fleet, agents), []
    for how in "AAARRRRRAAAA":
        await hour.look(how)
        said += [c.reason for c in hour.status.conditions if c.type == "TuningActive"]
    assert said[3:] == ["Active", *["SettingsRefused"] * 5, *["Active"] * 3]
