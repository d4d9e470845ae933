"""Engines that are ready and not well, told of in the object: real agents, a real API server."""

from __future__ import annotations

import signal

import pytest

from kvserving_operator.kube import paths
from tests.agent.processes import Agent

from .harness import Cluster, Object, OperatorProcess, wait_for
from .tuned import Stacks, made, operator

__all__ = ["made", "operator"]  # the fixtures

STUCK = """\
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100
"""
TOLD = 240.0
"""Seconds: a look comes 50 s after the last, the agent takes six scrapes until it knows, and one
that was silent once is left alone for a while."""


def told(cluster: Cluster, name: str, reason: str) -> list[Object]:
    return [
        event
        for event in cluster.list(paths.EVENTS)
        if event["reason"] == reason and event["involvedObject"]["name"] == name
    ]


def ends(agent: Agent, times: int) -> None:
    for _ in range(times):
        agent.another_life(agent.signal_life(signal.SIGKILL))


@pytest.mark.takes(130)
def test_an_engine_that_hangs_and_an_agent_that_ends_are_told_of_once(
    cluster: Cluster, operator: OperatorProcess, made: Stacks
) -> None:
    [stuck] = made.create("stuck", "Apply")
    [restless] = made.create("restless", "Apply")
    for name in ("stuck", "restless"):
        cluster.settled(name)
        # Its agents were heard: how often they had ended by then is known from that pass on.
        cluster.wait_condition(name, "TuningActive", "True", "Active")
    stuck.pages.behave(metrics=STUCK)
    ends(restless.agent, 3)

    found = cluster.wait_condition("stuck", "PrefillReady", "True", "EngineHung", timeout=TOLD)
    assert "pod stuck-prefill-0 has requests and gets nothing done" in found["message"]
    found = cluster.wait_condition(
        "restless", "PrefillReady", "True", "AgentRestarting", timeout=TOLD
    )
    assert "the agent in pod restless-prefill-0 ends again and again" in found["message"]
    for name, reason in (("stuck", "EngineHung"), ("restless", "AgentRestarting")):
        [event] = wait_for(lambda: told(cluster, name, reason), what=f"an event {reason}")  # noqa: B023
        assert (event["type"], event.get("count", 1)) == ("Warning", 1)
        assert cluster.condition(name, "Ready")["status"] == "True"
    assert operator.unexpected == []
