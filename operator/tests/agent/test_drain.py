"""Letting an engine go: the agent, and the helper that waits for it in the engine's container."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .processes import QUICK, TOKEN, Agent, VllmPages, eventually

SETTLE = 5.0
QUIET = 2.0


def page(*, running: int, finished: int) -> str:
    engine = 'engine="0",model_name="tiny"'
    return (
        f"vllm:num_requests_running{{{engine}}} {running}.0\n"
        f"vllm:num_requests_waiting{{{engine}}} 0.0\n"
        f"vllm:request_success_total{{{engine}}} {finished}.0\n"
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """As the volume is; the paths of sockets are short."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def beside(tmp_path: Path, folder: Path, pages: VllmPages) -> Iterator[Agent]:
    """An agent beside a prefill engine, not started."""
    process = Agent(
        tmp_path,
        pages.port,
        **QUICK,
        KVSERVING_AGENT_RUN_FOLDER=str(folder),
        KVSERVING_AGENT_DRAIN_TIMEOUT="60s",
        KVSERVING_AGENT_DRAIN_LEASE="0s",
    )
    yield process
    process.end()


def helper(folder: Path, seconds: float) -> subprocess.Popen[str]:
    """As the kubelet starts it."""
    command = [sys.executable, "-I", "-S", str(folder / "drain.py"), str(folder / "agent.sock")]
    return subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], within: float) -> str:
    said, _ = process.communicate(timeout=within)
    assert process.returncode == 0
    return said


def phase(agent: Agent) -> Any:
    drain = agent.facts()["drain"]
    return drain and drain["phase"]


def draining(beside: Agent, pages: VllmPages, folder: Path) -> subprocess.Popen[str]:
    """The helper that waits for an engine whose one request runs on."""
    pages.start(metrics=page(running=1, finished=0))
    beside.start()
    eventually("ready", lambda: beside.ready)
    waiting = helper(folder, 60)
    eventually("it drains", lambda: phase(beside))
    return waiting


def test_a_drain_waits_for_the_last_request_and_for_its_kv(
    beside: Agent, pages: VllmPages, folder: Path
) -> None:
    beside.env["KVSERVING_AGENT_DRAIN_LEASE"] = "4s"
    pages.start(metrics=page(running=1, finished=7))
    beside.start()
    eventually("ready", lambda: beside.ready)
    assert beside.facts()["drain"] is None
    waiting = helper(folder, 60)
    eventually("not ready", lambda: not beside.ready)
    eventually("quiet is waited for", lambda: phase(beside) == "Quiet")
    assert beside.metric("kvserving_agent_draining") == 1
    assert waiting.poll() is None
    pages.behave(metrics=page(running=0, finished=8))
    last = time.monotonic()
    eventually("the lease is waited for", lambda: phase(beside) == "Lease")
    assert ended(waiting, within=15).startswith("done")
    assert 4 <= time.monotonic() - last < 10
    assert beside.facts()["drain"]["reason"] == "Quiet"
    assert not beside.ready


def test_with_the_token_it_is_asked_for_too_again_and_again(
    beside: Agent, pages: VllmPages
) -> None:
    pages.start()  # a page that is never quiet
    beside.start()
    eventually("ready", lambda: beside.ready)
    assert beside.ask("/v1/drain", method="POST")[0] == 401
    assert beside.ready
    answers = []
    for _ in range(3):
        status, body, _ = beside.ask(
            "/v1/drain", method="POST", data=b"", Authorization=f"Bearer {TOKEN}"
        )
        assert status == 200
        answers.append(body)
        beside.await_scrape()
    assert all('"phase":"Settling"' in body or '"phase":"Quiet"' in body for body in answers)
    assert beside.facts()["drain"]["elapsedSeconds"] > 0
    assert not beside.ready


@pytest.mark.parametrize("metrics", ["process_start_time_seconds 1\n", page(running=0, finished=0)])
def test_an_engine_that_never_served_is_let_go_once_routers_know(
    beside: Agent, pages: VllmPages, folder: Path, metrics: str
) -> None:
    pages.start(metrics=metrics)
    beside.start()
    eventually("ready", lambda: beside.ready)
    beside.await_scrape()
    began = time.monotonic()
    assert ended(helper(folder, 60), within=20).startswith("done")
    assert SETTLE <= time.monotonic() - began < SETTLE + 5


@pytest.mark.parametrize("what", ["container", "agent"])
def test_an_agent_that_restarts_goes_on_with_the_drain(
    beside: Agent, pages: VllmPages, folder: Path, what: str
) -> None:
    waiting = draining(beside, pages, folder)
    waiting.kill()
    waiting.communicate()
    if what == "agent":
        # It knows at once what the life before it knew.
        beside.another_life(beside.signal_life(signal.SIGKILL))
    else:
        beside.end()
        beside.start()
        eventually("healthy", lambda: beside.facts()["engine"]["up"])
    assert phase(beside) is not None
    assert not beside.ready
    again = helper(folder, 60)
    pages.behave(metrics=page(running=0, finished=0))
    assert ended(again, within=20).startswith("done")


def test_a_helper_outlives_an_agent_that_restarts(
    beside: Agent, pages: VllmPages, folder: Path
) -> None:
    waiting = draining(beside, pages, folder)
    beside.end()
    pages.behave(metrics=page(running=0, finished=0))
    beside.start()
    assert ended(waiting, within=20).startswith("done")


@pytest.mark.parametrize("how", ["absent", "mute"])
def test_a_helper_whose_agent_does_not_answer_ends_within_its_bound(
    beside: Agent, pages: VllmPages, folder: Path, how: str
) -> None:
    pages.start()
    beside.start()
    beside.end()
    with socket.socket(socket.AF_UNIX) as mute:
        if how == "mute":
            (folder / "agent.sock").unlink()
            mute.bind(str(folder / "agent.sock"))
            mute.listen()
        began = time.monotonic()
        assert ended(helper(folder, 2), within=10).startswith("the time is over")
        assert 2 <= time.monotonic() - began < 4


def test_an_engine_that_hangs_is_not_held_back(
    beside: Agent, pages: VllmPages, folder: Path
) -> None:
    pages.start(metrics=page(running=1, finished=0))
    beside.start()
    eventually("ready", lambda: beside.ready)
    pages.behave(health="hang")
    eventually("silent", lambda: beside.facts()["engine"]["up"] is None)
    assert ended(helper(folder, 60), within=20).startswith("done")


def test_the_next_life_of_the_engine_serves(beside: Agent, pages: VllmPages, folder: Path) -> None:
    waiting = draining(beside, pages, folder)
    pages.end()
    assert ended(waiting, within=20).startswith("done")
    pages.start()
    eventually("ready again", lambda: beside.ready)
    assert beside.facts()["drain"] is None
    beside.end()
    beside.start()
    eventually("ready with another agent", lambda: beside.ready)


def test_an_engine_that_loses_its_sigterm_gets_another(
    beside: Agent, pages: VllmPages, folder: Path
) -> None:
    """Nobody sends one here, which is as much as losing it."""
    beside.env["KVSERVING_AGENT_REMIND_AFTER"] = "1s"
    beside.start()
    # It starts, and nothing listens yet: there is nothing to wait for.
    assert ended(helper(folder, 60), within=20).startswith("done")
    pages.start(metrics=page(running=0, finished=0))
    # This process began afterwards: another engine.
    eventually("ready", lambda: beside.ready)
    beside.await_scrape()
    assert pages.running.poll() is None
    assert ended(helper(folder, 60), within=20).startswith("done")
    eventually("it ends", lambda: pages.running.poll() is not None)
    assert pages.running.returncode == -signal.SIGTERM
    assert beside.running.poll() is None


def test_an_engine_that_is_drained_and_not_stopped_is_left_alone(
    beside: Agent, pages: VllmPages
) -> None:
    beside.env["KVSERVING_AGENT_REMIND_AFTER"] = "100ms"
    pages.start(metrics=page(running=0, finished=0))
    beside.start()
    eventually("ready", lambda: beside.ready)

    def done() -> bool:
        body = beside.ask("/v1/drain", method="POST", data=b"", Authorization=f"Bearer {TOKEN}")[1]
        return '"phase":"Done"' in body

    eventually("it is drained", done)
    for _ in range(3):
        beside.await_scrape()
    assert pages.running.poll() is None
