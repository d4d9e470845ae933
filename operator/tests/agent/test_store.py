"""The store's control contract, served by the package itself, as the agent shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvserving_operator.fit import parse_recent

from .ports import Store
from .processes import QUICK, Agent, VllmPages, eventually
from .store_state import CAPABILITIES


@pytest.fixture
def beside(tmp_path: Path, pages: VllmPages, store: Store) -> Iterator[Agent]:
    agent = Agent(tmp_path, pages.port, **QUICK, KVSERVING_AGENT_STORE_URL=store.url)
    pages.start()
    agent.start()
    yield agent
    agent.end()


def test_the_state_is_followed(beside: Agent, store: Store) -> None:
    eventually("starting", lambda: beside.facts()["store"]["closed"] == "Starting")
    store.close("")
    eventually("open", lambda: beside.facts()["store"]["closed"] is None)
    facts = beside.facts()
    assert facts["capabilities"] == sorted(CAPABILITIES)
    assert facts["store"]["startId"] == "s1"
    assert facts["store"]["settings"] == {"mode": "Auto", "minTokens": 0}
    assert facts["store"]["counters"] == {"bytes_read": 4096.0, "busy_share": 0.25}
    assert (facts["store"]["stale"], facts["store"]["recent"]["loads"]["rows"]) == (False, [])
    store.close("KVRoundTripMismatch")
    eventually("closed", lambda: beside.facts()["store"]["closed"] == "KVRoundTripMismatch")
    assert eventually("serving goes on", lambda: beside.ready)


def test_a_store_that_is_gone_leaves_nothing_behind(beside: Agent, store: Store) -> None:
    eventually("answered", lambda: beside.facts()["store"]["startId"] == "s1")
    store.end()
    eventually("refused", lambda: beside.facts()["store"]["lastError"] == "Refused")
    facts = beside.facts()
    assert facts["capabilities"] == []
    assert facts["store"]["startId"] is None
    assert facts["engine"]["up"] is True
    store.serve("s2")
    eventually("another start", lambda: beside.facts()["store"]["startId"] == "s2")


def test_the_state_of_an_engine_that_ended_is_dropped(
    beside: Agent, store: Store, pages: VllmPages
) -> None:
    eventually("answered", lambda: beside.facts()["store"]["startId"] == "s1")
    store.end()
    pages.end()
    eventually("down", lambda: beside.facts()["engine"]["up"] is False)
    assert beside.facts()["store"]["startId"] is None


def test_loads_and_steps_come_with_the_age_of_the_newest(beside: Agent, store: Store) -> None:
    eventually("answered", lambda: beside.facts()["store"]["startId"] == "s1")
    store.tell("run 40")

    def recent() -> dict[str, Any]:
        rings: dict[str, Any] = beside.facts()["store"]["recent"]
        return rings

    eventually("rows", lambda: len(recent()["loads"]["rows"]) == 12)
    read = parse_recent(recent())
    assert ([r.serial for r in read.loads], read.dropped) == (list(range(28, 40)), 0)
    assert [r.serial for r in read.steps] == list(range(34, 40))
    age = recent()["loads"]["newestAgeSeconds"]
    assert 0 <= age < 20
    eventually("it grows", lambda: recent()["loads"]["newestAgeSeconds"] > age)
    assert len(recent()["loads"]["rows"]) == 12
    assert beside.resident_mib("VmHWM") < 80
