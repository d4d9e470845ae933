"""Engines wait for their tier, with a bound, and start without it: by the pod as it is rendered."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from kvserving_operator.engines.base import Role
from tests.agent.processes import AGENT
from tests.tier_servers import Server
from tests.unit.stack import SPLIT, TIER, one, rendered

SECONDS = 60
"""That engines wait at most, as rendered."""


def waiting() -> list[str]:
    """The arguments of the container that runs before the engine."""
    pod = one(rendered({**SPLIT, **TIER}), "StatefulSet", "x-prefill")["spec"]["template"]["spec"]
    [container] = [c for c in pod["initContainers"] if "wait-for-tier" in c["args"]]
    assert "restartPolicy" not in container, "the engine starts when it has ended, not beside it"
    arguments: list[str] = container["args"]
    assert arguments[0] == AGENT.name
    return arguments[1:]


def run(folder: Path, arguments: list[str], timeout: float) -> tuple[int, str, float]:
    began = time.monotonic()
    log = folder / "wait.log"
    with log.open("w") as out:
        done = subprocess.run([AGENT, *arguments], stderr=out, timeout=timeout, check=False)
    return done.returncode, log.read_text(), time.monotonic() - began


def with_tier(servers: list[Server], seconds: float) -> list[str]:
    """The rendered arguments, a shorter bound and these instances in them."""
    arguments = waiting()
    bound = arguments.index("--timeout") + 1
    assert arguments[bound] == f"{SECONDS}s"
    named = [a for a in arguments if re.fullmatch(r"x-valkey-\d+\.x-valkey\.[a-z]+\.svc:6379", a)]
    assert len(named) == 1, arguments
    kept = [a for a in arguments if a not in named]
    kept[kept.index(f"{SECONDS}s")] = f"{seconds}s"
    return [*kept, *(f"{server.address}:{server.port}" for server in servers)]


@pytest.mark.parametrize("dead", ["killed", "hung"])
def test_an_engine_starts_without_its_tier(tmp_path: Path, dead: str) -> None:
    with Server(tmp_path / "a") as well, Server(tmp_path / "b") as ill:
        ill.kill() if dead == "killed" else ill.freeze()
        status, log, took = run(tmp_path, with_tier([well, ill], 2), 20)
    assert status == 0, log
    assert 2 <= took < 8
    assert "starting without the whole tier" in log
    assert f":{ill.port}" in log
    assert f":{well.port}" not in log


def test_an_engine_starts_at_once_beside_a_tier_that_answers(tmp_path: Path) -> None:
    with Server(tmp_path / "a") as first, Server(tmp_path / "b") as second:
        status, log, took = run(tmp_path, with_tier([first, second], SECONDS), SECONDS)
    assert status == 0, log
    assert took < 10


def test_the_roles_that_wait_are_those_that_carry_the_tier() -> None:
    objects = rendered({**SPLIT, **TIER})
    for role, waits in ((Role.PREFILL, True), (Role.DECODE, False)):
        pod = one(objects, "StatefulSet", f"x-{role}")["spec"]["template"]["spec"]
        found = any("wait-for-tier" in c["args"] for c in pod["initContainers"])
        assert found is waits
