"""An engine whose front answers and whose core does nothing."""

from __future__ import annotations

from .processes import Agent, VllmPages, eventually
from .vllm_pages import PAGE


def page(waiting: int, tokens: int) -> str:
    engine = 'engine="0",model_name="tiny"'
    return (
        f"vllm:num_requests_running{{{engine}}} 1.0\n"
        f"vllm:num_requests_waiting{{{engine}}} {waiting}.0\n"
        f"vllm:generation_tokens_total{{{engine}}} {tokens}.0\n"
    )


def test_hung_is_told_with_seconds_and_ends_with_progress_or_a_restart(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start(metrics=page(2, 100))
    agent.start()
    eventually("scraped", lambda: agent.facts()["engine"]["hung"] is False)
    eventually("hung", lambda: agent.facts()["engine"]["hung"])
    engine = agent.facts()["engine"]
    assert engine["up"] is True
    assert engine["ready"] is True
    assert engine["noProgressSeconds"] > 1

    pages.behave(metrics=page(2, 101))
    eventually("some progress", lambda: agent.facts()["engine"]["hung"] is False)
    eventually("hung again", lambda: agent.facts()["engine"]["hung"])
    pages.restart()
    pages.behave(metrics=page(0, 0))
    eventually("idle in its second life", lambda: agent.facts()["numbers"]["waiting"]["value"] == 0)
    second = agent.facts()["engine"]
    assert (second["hung"], second["noProgressSeconds"]) == (False, None)
    assert second["startId"] not in {None, engine["startId"]}


def test_an_engine_that_waits_and_works_is_not_hung(pages: VllmPages, agent: Agent) -> None:
    pages.start(metrics=page(2, 0))
    agent.start()
    for tokens in range(1, 9):
        pages.behave(metrics=page(2, tokens))
        agent.await_scrape()
        assert agent.facts()["engine"]["hung"] is False


def test_numbers_that_are_no_longer_read_are_stale(pages: VllmPages, agent: Agent) -> None:
    pages.start(metrics=PAGE)
    agent.start()
    agent.await_scrape()
    before = agent.facts()
    assert before["scrape"]["stale"] is False
    pages.behave(metrics="nothing of ours\n")
    eventually("stale", lambda: agent.facts()["scrape"]["stale"])
    after = agent.facts()
    assert after["engine"]["startId"] == before["engine"]["startId"]
    assert after["numbers"]["running"]["value"] == before["numbers"]["running"]["value"]
    assert after["engine"]["hung"] is None
