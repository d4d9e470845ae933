"""An agent that dies is started again by its supervisor, and who asks meanwhile is answered."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .processes import Agent, VllmPages, eventually

PROBE_SECONDS = 5.0
"""How long the kubelet waits for /readyz: an engine leaves service when two in a row fail."""


def told(agent: Agent, message: str) -> list[dict[str, Any]]:
    """The lines of the log with this message."""
    lines = (json.loads(line) for line in agent.log.read_text().splitlines())
    return [line for line in lines if line["message"] == message]


class Probes:
    """Asks for /readyz without end, as a kubelet does but without its pause."""

    def __init__(self, agent: Agent) -> None:
        self.answers: list[tuple[int, float]] = []
        self._agent = agent
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Probes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._enough.is_set():
            asked = time.monotonic()
            status = self._agent.status("/readyz")
            self.answers.append((status, time.monotonic() - asked))
            self._enough.wait(0.01)


def in_service(probes: Probes) -> bool:
    """Whether a kubelet would have left the pod ready: no two probes in a row failed."""
    good = [status == 200 and took < PROBE_SECONDS for status, took in probes.answers]
    return all(one or other for one, other in itertools.pairwise(good))


@pytest.fixture
def serving(pages: VllmPages, agent: Agent) -> Agent:
    """An agent that is ready."""
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    eventually("it is named", lambda: agent.facts()["engine"]["startId"])
    return agent


def test_killed_under_load_it_serves_again_and_nobody_is_refused(serving: Agent) -> None:
    start = serving.facts()["engine"]["startId"]
    with Probes(serving) as probes:
        eventually("probes", lambda: len(probes.answers) > 5)
        began = time.monotonic()
        serving.another_life(serving.signal_life(signal.SIGKILL))
        away = time.monotonic() - began
    # .8 s alone on two cores, of which imports are .6.
    assert away < PROBE_SECONDS
    # The one that was being answered may be lost, all others are answered as before.
    assert [status for status, _ in probes.answers].count(200) >= len(probes.answers) - 1
    assert in_service(probes)
    facts = serving.facts()
    assert facts["agent"] == {"lives": 2, "lastEnd": "SIGKILL"}
    assert facts["engine"]["startId"] == start
    assert serving.metric('kvserving_agent_restarts_total{reason="SIGKILL"}') == 1
    (line,) = told(serving, "the agent ended")
    assert (line["reason"], line["life"], line["againIn"]) == ("SIGKILL", 1, 0)


def test_it_is_ready_at_once_beside_an_engine_that_is_too_busy_to_answer(
    pages: VllmPages, serving: Agent
) -> None:
    serving.env["KVSERVING_AGENT_STALE_AFTER"] = "20s"
    serving.end()
    serving.start()
    eventually("ready", lambda: serving.ready)
    eventually("it is named", lambda: serving.facts()["engine"]["startId"])
    pages.running.send_signal(signal.SIGSTOP)
    serving.another_life(serving.signal_life(signal.SIGKILL))
    assert serving.ready, "the engine answered a moment ago"
    pages.running.send_signal(signal.SIGCONT)


def test_an_engine_that_started_anew_is_not_taken_for_the_old_one(
    pages: VllmPages, serving: Agent
) -> None:
    start = serving.facts()["engine"]["startId"]
    os.kill(serving.running.pid, signal.SIGSTOP)
    before = serving.signal_life(signal.SIGKILL)
    pages.end()
    pages.start(health=503)
    os.kill(serving.running.pid, signal.SIGCONT)
    serving.another_life(before)
    assert not serving.ready
    eventually("it is named", lambda: serving.facts()["engine"]["startId"] not in (None, start))


def test_twenty_kills_in_a_row_leave_the_pod_in_service(serving: Agent) -> None:
    with Probes(serving) as probes:
        for _ in range(20):
            serving.another_life(serving.signal_life(signal.SIGKILL))
    assert in_service(probes)
    assert serving.facts()["agent"] == {"lives": 21, "lastEnd": "SIGKILL"}
    pauses = [line["againIn"] for line in told(serving, "the agent ended")]
    assert pauses[0] == 0
    assert max(pauses) <= 1, "a probe waits longer"
    zombies = [p for p in Path("/proc").glob("[0-9]*/stat") if _is_zombie_of(p, serving)]
    assert not zombies


def _is_zombie_of(stat: Path, agent: Agent) -> bool:
    try:
        state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state == "Z" and int(parent) == agent.running.pid


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTERM])
def test_one_that_hangs_or_is_stopped_by_somebody_is_replaced(
    serving: Agent, number: signal.Signals
) -> None:
    with Probes(serving) as probes:
        serving.another_life(serving.signal_life(number))
    assert in_service(probes)
    expected = "Hung" if number == signal.SIGSTOP else "Exit 0"
    assert serving.facts()["agent"]["lastEnd"] == expected


def test_a_port_that_is_taken_or_is_none_ends_the_container_with_its_status(
    pages: VllmPages, agent: Agent
) -> None:
    with socket.create_server(("127.0.0.1", agent.port)):
        agent.env["KVSERVING_AGENT_HOST"] = agent.host
        agent.spawn(*agent.command, env=agent.env)
        assert agent.running.wait(20) == 1
    assert f"port {agent.port}" in told(agent, "cannot start")[0]["reason"]
    agent.env["KVSERVING_AGENT_PORT"] = "none"
    agent.spawn(*agent.command, env=agent.env)
    assert agent.running.wait(20) == 2


def test_sigterm_ends_both(pages: VllmPages, serving: Agent) -> None:
    life = serving.life
    pages.end()
    serving.running.terminate()
    assert serving.running.wait(10) == 0
    assert not Path(f"/proc/{life}").exists()
    assert not told(serving, "the agent ended")


def test_sigterm_between_two_lives_ends_the_supervisor(serving: Agent) -> None:
    for _ in range(3):
        serving.another_life(serving.signal_life(signal.SIGKILL))
    serving.signal_life(signal.SIGKILL)
    eventually("between two", lambda: not serving.life)
    serving.running.terminate()
    assert serving.running.wait(10) == 0


def test_an_agent_does_not_outlive_its_supervisor(serving: Agent) -> None:
    life = serving.life
    serving.running.kill()
    serving.running.wait()
    eventually("it is gone", lambda: not Path(f"/proc/{life}").exists(), within=5)
    with socket.create_server((serving.host, serving.port)):
        pass
