"""The store's control contract, served by the package itself, as the agent shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import QUICK, Agent, Process, VllmPages, eventually, free_port
from .store_state import CAPABILITIES

PACKAGE = Path(__file__).parents[3] / "engine-patches" / "sharded-store"


class Store(Process):
    """The package's control contract in a process of its own, as in an engine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "store.log")
        self.port = free_port()

    def serve(self, start: str) -> None:
        script = str(Path(__file__).with_name("store_state.py"))
        env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        self.spawn(sys.executable, script, str(self.port), start, env=env)
        self._answer("listening")

    def close(self, reason: str) -> None:
        """Close the tier; open it with an empty reason."""
        stdin = self.running.stdin
        assert stdin
        stdin.write(reason + "\n")
        stdin.flush()
        self._answer("done")

    def _answer(self, expected: str) -> None:
        stdout = self.running.stdout
        assert stdout
        assert stdout.readline().strip() == expected, self.log.read_text()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    served = Store(tmp_path)
    served.serve("s1")
    yield served
    served.end()


@pytest.fixture
def beside(tmp_path: Path, pages: VllmPages, store: Store) -> Iterator[Agent]:
    url = f"http://127.0.0.1:{store.port}"
    agent = Agent(tmp_path, pages.port, **QUICK, KVSERVING_AGENT_STORE_URL=url)
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
    assert facts["store"]["counters"] == {"bytes_read": 4096.0}
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
