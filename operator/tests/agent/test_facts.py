"""/v1/facts and /metrics: the engine's numbers, honest whatever the engine shows."""

from __future__ import annotations

import json

import pytest

from .processes import TOKEN, Agent, VllmPages, eventually
from .vllm_pages import PAGE


def test_facts_of_a_well_engine(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    agent.await_scrape()
    facts = agent.facts()
    assert (facts["schema"], facts["role"], facts["capabilities"]) == (1, "prefill", [])
    assert facts["podUid"] == "6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11"
    engine = facts["engine"]
    passing = {"startId": 0, "healthAgeSeconds": 0, "hung": 0, "noProgressSeconds": 0}
    assert engine | passing == {
        "type": "VLLM",
        "up": True,
        "ready": True,
        "version": "0.33.0",
        "model": "tiny",
        "startId": 0,
        "startIdSource": "Socket",
        "healthAgeSeconds": 0,
        "hung": 0,
        "noProgressSeconds": 0,
    }
    values = {name: n for name, n in facts["numbers"].items() if n is not None}
    assert values == {
        "running": 3,
        "waiting": 1,
        "kvCacheUsage": 0.125,
        "externalPrefixCacheQueries": 1000,
        "externalPrefixCacheHits": 960,
        "nixlBytes": 2097152,
        "requestsFinished": 7,
        "tierWriteBytes": 4096,
    }
    assert facts["scrape"]["ageSeconds"] < 5
    assert list(facts["latencies"]) == ["request"], "a prefill has one token a request"
    assert len(json.dumps(facts, separators=(",", ":"))) < 1500


def test_a_restart_in_place_changes_the_start_id_and_drops_the_old_numbers(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start()
    agent.start()
    agent.await_scrape()
    first = agent.facts()["engine"]["startId"]
    pages.end()
    # A connection that breaks off comes before the first refusal, and is no sign of the end yet.
    eventually("gone", lambda: agent.facts()["engine"]["startId"] is None)
    down = agent.facts()
    assert down["engine"]["up"] is False
    assert down["scrape"]["errors"] <= 1, "an engine that is gone is no bad page"
    assert set(down["numbers"].values()) == {None}
    pages.start(version="0.33.1")
    second = eventually("another life", lambda: agent.facts()["engine"]["startId"])
    assert second != first
    eventually("its version", lambda: agent.facts()["engine"]["version"] == "0.33.1")
    assert agent.metric("kvserving_agent_engine_starts_total") == 1


def test_a_restart_between_two_looks_is_seen_too(pages: VllmPages, agent: Agent) -> None:
    # Longer than a start of the pages takes on a busy machine.
    agent.env["KVSERVING_AGENT_PROBE_PERIOD"] = "6s"
    agent.env["KVSERVING_AGENT_SCRAPE_PERIOD"] = "60s"
    pages.start()
    agent.start()
    eventually("its numbers", lambda: agent.number("running") == 3)
    first = agent.facts()["engine"]["startId"]
    pages.end()
    pages.start(metrics="vllm:prompt_tokens_total 1\n")
    second = eventually(
        "another",
        lambda: f if (f := agent.facts())["engine"]["startId"] not in (first, None) else None,
    )
    assert second["numbers"]["running"] is None, "a number of the life before"


def test_an_agent_that_restarts_comes_to_the_same_start_id(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    first = eventually("a start id", lambda: agent.facts()["engine"]["startId"])
    agent.end()
    agent.start()
    assert eventually("a start id", lambda: agent.facts()["engine"]["startId"]) == first


@pytest.mark.parametrize("bad", ["NaN", "-1", "+Inf", "1e400", "1e300", "abc", ""])
def test_a_poisoned_number_is_null_and_its_neighbours_are_not(
    pages: VllmPages, agent: Agent, bad: str
) -> None:
    page = PAGE.replace('num_requests_running{engine="0",model_name="tiny"} 3.0', f"{{}} {bad}")
    page = f'vllm:num_requests_running{{engine="0"}} {bad}\n' + page
    pages.start(metrics=page)
    agent.start()
    agent.await_scrape()
    assert agent.number("running") is None
    assert agent.number("waiting") == 1


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("endless", "TooLarge"),
        ("one-line", "Malformed"),
        ("gzip", "Malformed"),
        ("cut", "Malformed"),
    ],
)
def test_a_hostile_page_is_an_error_in_bounded_memory(
    pages: VllmPages, agent: Agent, how: str, fault: str
) -> None:
    pages.start(how=how)
    agent.start()
    agent.await_error(fault)
    agent.await_error(fault)
    facts = agent.facts()
    assert facts["scrape"]["lastError"] == fault
    assert facts["scrape"]["errors"] >= 2
    assert facts["numbers"]["running"] is None
    assert agent.ready, "the numbers are one thing, the health is another"
    assert agent.resident_mib("VmHWM") < 80
    pages.behave(how="plain")
    agent.await_scrape()
    assert agent.number("running") == 3
    assert agent.facts()["scrape"]["lastError"] is None


def test_a_page_without_any_known_series_is_no_metrics_page(pages: VllmPages, agent: Agent) -> None:
    pages.start(metrics="<html><body>sign in</body></html>\n")
    agent.start()
    agent.await_error("Malformed")


def test_a_page_that_never_ends_slowly_times_out(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    agent.await_scrape()
    pages.behave(how="slow")
    agent.await_error("Timeout")
    facts = agent.facts()
    assert facts["numbers"]["running"] == 3
    assert facts["scrape"]["ageSeconds"] >= 5
    assert agent.ready


def test_hostile_names_stay_short_and_are_json(pages: VllmPages, agent: Agent) -> None:
    pages.start(models=['"} \n' + "x" * 100_000], version="y" * 10_000)
    agent.start()
    engine = eventually("ready", lambda: agent.ready and agent.facts()["engine"])
    assert engine["model"].startswith('"} \n')
    assert len(engine["model"]) == len(engine["version"]) == 256


def test_metrics_are_open_and_hold_no_token(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    agent.await_scrape()
    status, body, headers = agent.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "kvserving_agent_engine_up 1.0" in body
    assert "kvserving_agent_scrape_age_seconds" in body
    assert "process_resident_memory_bytes" in body
    assert TOKEN not in body
    # It is no secret: whoever knows it can change nothing without the token.
    assert f'start_id="{agent.facts()["engine"]["startId"]}"' in body
