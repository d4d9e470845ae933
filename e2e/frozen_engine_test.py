"""Promise: an engine that hangs gets no requests, and takes them again when it answers again.

On a real vLLM, whose agent tells its readiness. Nothing is restarted: a hang of half a minute may
be a long prompt, and a restart costs minutes.
"""

from __future__ import annotations

from conftest import Serving
from stack import pods
from stack.agent import Agent
from stack.client import Client, prompt
from stack.kubectl import condition, wait_for


def test_a_frozen_engine_is_out_of_service_until_it_answers(
    quickstart: Serving, client: Client
) -> None:
    kubectl, pod = quickstart.kubectl, "quickstart-prefill-0"
    agent = Agent(kubectl, quickstart.name, pod)
    mine = f"kvserving.io/kvserving={quickstart.name}"

    def answered() -> bool:
        answer = client.complete(quickstart.url, prompt(9, 100), model=quickstart.model, tokens=4)
        return answer.status == 200

    def ready(status: str) -> bool:
        found = condition(quickstart.get(), "PrefillReady")
        return found is not None and found["status"] == status

    def counted(name: str) -> float:
        return agent.facts()["numbers"][name] or 0

    assert answered()
    wait_for("the answer is counted", lambda: counted("requestsFinished") >= 1, timeout=60)
    before, lives = agent.facts(), pods.lives(kubectl, mine)
    engine = before["engine"]
    assert (engine["up"], engine["model"], engine["startIdSource"]) == (True, "tiny", "Socket")
    assert engine["version"].split(".")[0].isdigit()
    assert counted("promptTokens") >= 100
    agent.signal_engine("SIGSTOP")
    try:
        wait_for("prefill is out of service", lambda: ready("False"), timeout=60)
        assert not answered()
        assert agent.facts()["engine"]["up"] is not True  # False, or not known any more
    finally:
        agent.signal_engine("SIGCONT")
    wait_for("prefill is in service again", lambda: ready("True"), timeout=60)
    wait_for("an answer", answered, timeout=30)
    assert agent.facts()["engine"]["startId"] == engine["startId"]
    assert pods.lives(kubectl, mine) == lives
