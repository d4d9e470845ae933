"""Promise: an engine that hangs gets no requests, and takes them again when it answers again.

On a real vLLM, whose agent tells its readiness. Nothing is restarted: a hang of half a minute may
be a long prompt, and a restart costs minutes.
"""

from __future__ import annotations

from conftest import Serving
from stack import pods
from stack.agent import Agent
from stack.client import Client, prompt
from stack.kubectl import eventually, wait_for


def test_a_frozen_engine_is_out_of_service_until_it_answers(
    quickstart: Serving, client: Client
) -> None:
    kubectl, pod = quickstart.kubectl, "quickstart-prefill-0"
    agent = Agent(kubectl, quickstart.name, pod)
    mine = f"kvserving.io/kvserving={quickstart.name}"

    def answered() -> bool:
        answer = client.complete(quickstart.url, prompt(9, 100), model=quickstart.model, tokens=4)
        return answer.status == 200

    def counted(name: str) -> float:
        return agent.facts()["numbers"][name] or 0

    def known() -> None:
        assert counted("requestsFinished") >= 1
        assert counted("promptTokens") >= 100

    def down() -> None:
        assert agent.facts()["engine"]["up"] is not True  # False, or not known any more

    def up() -> None:
        found = agent.facts()["engine"]
        assert (found["up"], found["startId"]) == (True, engine["startId"])

    wait_for("an answer", answered, timeout=180)
    eventually("the answer is counted", known, timeout=90)
    before, lives = agent.facts(), pods.lives(kubectl, mine)
    engine = before["engine"]
    assert (engine["up"], engine["model"], engine["startIdSource"]) == (True, "tiny", "Socket")
    assert engine["version"].split(".")[0].isdigit()
    agent.signal_engine("SIGSTOP")
    try:
        quickstart.wait_says("PrefillReady", "False")
        assert not answered()
        eventually("its agent knows", down, timeout=60)
    finally:
        agent.signal_engine("SIGCONT")
    quickstart.wait_says("PrefillReady", "True")
    wait_for("an answer", answered, timeout=240)
    eventually("it is the same engine", up, timeout=60)
    assert pods.lives(kubectl, mine) == lives
