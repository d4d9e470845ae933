"""An engine whose front answers and whose core does nothing."""

from __future__ import annotations

import json
from typing import Any

from kvserving_agent.progress import HUNG_SCRAPES

from .processes import Agent, VllmPages, eventually
from .vllm_pages import PAGE


def page(*, waiting: int, tokens: str) -> str:
    engine = 'engine="0",model_name="tiny"'
    return (
        f"vllm:num_requests_running{{{engine}}} 1.0\n"
        f"vllm:num_requests_waiting{{{engine}}} {waiting}.0\n"
        f"vllm:generation_tokens_total{{{engine}}} {tokens}\n"
    )


MOVING = page(waiting=2, tokens="@PAGES@")
STUCK = page(waiting=2, tokens="100")
ALONE = page(waiting=0, tokens="100")
IDLE = ALONE.replace('running{engine="0",model_name="tiny"} 1.0', "running 0.0")


def test_hung_is_told_with_seconds_and_ends_with_progress_or_a_restart(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start(metrics=STUCK)
    agent.start()
    eventually("hung", lambda: agent.facts()["engine"]["hung"])
    engine = agent.facts()["engine"]
    assert engine["up"] is True
    assert engine["ready"] is True
    assert engine["noProgressSeconds"] > 1

    pages.behave(metrics=MOVING)
    eventually("some progress", lambda: agent.facts()["engine"]["hung"] is False)
    pages.behave(metrics=STUCK)
    eventually("hung again", lambda: agent.facts()["engine"]["hung"])
    pages.restart()
    pages.behave(metrics=IDLE)
    eventually("idle in its second life", lambda: agent.number("waiting") == 0)
    second = agent.facts()["engine"]
    assert (second["hung"], second["noProgressSeconds"]) == (False, None)
    assert second["startId"] not in {None, engine["startId"]}


def test_hung_with_what_ran_then_and_the_log_tells_it_with_its_numbers(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start(metrics=ALONE)
    agent.start()
    eventually("hung", lambda: agent.facts()["engine"]["hung"])
    lines = eventually("a line of it", lambda: said(agent, "work: hung"))
    assert [(line["level"], line["running"], line["waiting"]) for line in lines] == [
        ("warning", 1, 0)
    ]
    pages.behave(metrics=IDLE)
    eventually("the end of it", lambda: said(agent, "work: gets done"))


def said(agent: Agent, message: str) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in agent.log.read_text().splitlines())
    return [line for line in lines if line["message"] == message]


def test_an_engine_that_waits_and_works_is_not_hung(pages: VllmPages, agent: Agent) -> None:
    pages.start(metrics=MOVING)
    agent.start()
    agent.await_scrape()
    for _ in range(HUNG_SCRAPES):
        agent.await_scrape()
        assert agent.facts()["engine"]["hung"] is False


def test_numbers_that_are_no_longer_read_are_stale(pages: VllmPages, agent: Agent) -> None:
    pages.start(metrics=PAGE)
    agent.start()
    eventually("fresh", lambda: agent.facts()["scrape"]["stale"] is False)
    before = agent.facts()
    pages.behave(metrics="nothing of ours\n")
    eventually("stale", lambda: agent.facts()["scrape"]["stale"])
    after = agent.facts()
    assert after["engine"]["startId"] == before["engine"]["startId"]
    assert after["numbers"]["running"] == before["numbers"]["running"]
    assert after["engine"]["hung"] is None
