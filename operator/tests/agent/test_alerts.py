"""The alert rules that ship, in a real Prometheus that scrapes a real agent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Agent, VllmPages, eventually
from .prometheus import NAMESPACE, Scraped, Server
from .test_hung import MOVING, STUCK

RULES = Path(__file__).parents[3] / "charts" / "kvserving-operator" / "files" / "alerts.yaml"
POD = "x-decode-0"
ENDS = 5
"""One more than it takes: the first is on the page before the server has seen it without."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "prometheus").mkdir()
    process = Server(tmp_path / "prometheus")
    yield process
    process.end()


def states(server: Server) -> dict[str, str]:
    """By name of an alert about the pod, whether it is pending or fires."""
    return {
        each["labels"]["alertname"]: each["state"]
        for each in server.alerts()
        if (each["labels"].get("namespace"), each["labels"].get("pod")) == (NAMESPACE, POD)
    }


def test_what_an_agent_tells_makes_the_alerts_about_it(
    pages: VllmPages, agent: Agent, server: Server
) -> None:
    pages.start(metrics=MOVING)
    agent.start()
    server.start(Scraped(agent.port, POD), rules=RULES)
    eventually("scraped", lambda: server.ask("kvserving_agent_engine_up == 1"))
    assert states(server) == {}

    pages.behave(metrics=STUCK)
    eventually(
        "two minutes have begun", lambda: states(server) == {"KVServingEngineHung": "pending"}
    )
    pages.behave(metrics=MOVING)
    eventually("they are over", lambda: states(server) == {})

    for count in range(1, ENDS + 1):
        agent.another_life(agent.signal_life(signal.SIGKILL))
        ended = "sum(kvserving_agent_restarts_total)"
        eventually(f"{count} ends are scraped", lambda: server.total(ended) >= count)  # noqa: B023
    eventually("it fires", lambda: states(server).get("KVServingAgentRestarts") == "firing")
