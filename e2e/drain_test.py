"""Promise: an engine that is let go finishes what it has, and clients notice nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from conftest import Serving, example, serve
from stack import pods
from stack.agent import Agent
from stack.client import Answer, Client, prompt
from stack.install import Testbed
from stack.kubectl import eventually, wait_for

TOKENS = 1000
PREFILL_SECONDS = 50.0
"""Longer than the 20 s that an engine gives its requests by itself after SIGTERM, by far more than
it takes to see that it computes."""


@pytest.fixture(scope="module")
def slow(testbed: Testbed) -> Iterator[Serving]:
    """A stack whose prefill takes as long as a very long prompt would."""
    kubectl = testbed.namespace("kvs-drain")
    obj = example("quickstart-pcp", name="slow")
    spec = obj["spec"]
    spec["kvCache"].pop("remote", None)
    # Its names are the operator's own in `env`; a command of the user's may set what it likes.
    rate = f"export KVSERVING_SIM_TOKENS_PER_SECOND={TOKENS / PREFILL_SECONDS}"
    command = ["/bin/sh", "-c", f'{rate}; exec vllm serve "$@"', "--"]
    spec["prefill"] |= {
        "drain": {"timeout": "120s", "lease": "20s"},
        # Gauges are of the last step that ended, so steps are short.
        "extraArgs": ["--max-num-batched-tokens", "64"],
        "podTemplate": {"spec": {"containers": [{"name": "engine", "command": command}]}},
    }
    serving = serve(kubectl, obj)
    serving.wait_ready()
    yield serving
    kubectl.delete("kvserving", "slow")


def test_a_prefill_that_is_deleted_finishes_its_request(slow: Serving, client: Client) -> None:
    kubectl, pod = slow.kubectl, "slow-prefill-0"
    agent, answers = Agent(kubectl, slow.name, pod), list[Answer]()

    def ask() -> None:
        text = prompt(3, TOKENS)
        answers.append(client.complete(slow.url, text, model=slow.model, tokens=16))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(
        "the prompt is computed",
        lambda: agent.facts()["numbers"]["running"],
        timeout=PREFILL_SECONDS,
        at_most=0.5,
    )
    began = time.monotonic()
    old = pods.remove(kubectl, pod)

    def drains() -> None:
        facts = agent.facts()
        assert facts["drain"], facts
        assert facts["engine"]["ready"] is False, facts

    eventually("it drains, and takes no more", drains, timeout=PREFILL_SECONDS - 20, at_most=0.5)
    asking.join(timeout=120)
    took = time.monotonic() - began
    assert [answer.status for answer in answers] == [200], answers
    assert answers[0].text
    assert took > 20, "the engine's own time-out would have been enough"
    pods.await_successor(kubectl, old)


def test_an_idle_prefill_goes_within_seconds(slow: Serving) -> None:
    """Nothing was computed in it, so nobody fetches anything."""
    uid = pods.remove(slow.kubectl, "slow-prefill-0")["metadata"]["uid"]

    def gone() -> bool:
        found = slow.kubectl.get("pod", "slow-prefill-0")
        return found is None or found["metadata"]["uid"] != uid

    wait_for("the idle pod is gone", gone, timeout=30)
