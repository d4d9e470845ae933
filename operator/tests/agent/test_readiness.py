"""/readyz: never before the engine serves, gone when it does not, quiet about all else."""

from __future__ import annotations

import signal

from .processes import TOKEN, Agent, VllmPages, eventually


def test_not_ready_before_the_engine_serves_a_model(pages: VllmPages, agent: Agent) -> None:
    agent.start()
    assert agent.status("/readyz") == 503
    pages.start(health=503, models=[])
    agent.await_error("Status", "health")
    assert not agent.ready
    pages.behave(health=200)
    eventually("healthy", lambda: agent.facts()["engine"]["up"])
    agent.await_scrape()
    assert not agent.ready, "no model is listed"
    pages.behave(models="404")
    agent.await_error("Status", "models")
    assert not agent.ready
    pages.behave(models="deep")
    agent.await_error("Malformed", "models")
    assert not agent.ready
    pages.behave(models=["tiny"])
    eventually("ready", lambda: agent.ready)


def test_readyz_tells_nothing_but_yes_or_no(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    status, body, headers = agent.ask("/readyz")
    assert (status, body, headers["Server"]) == (200, "", "kvserving-agent")
    pages.end()
    eventually("not ready", lambda: not agent.ready)
    assert agent.ask("/readyz")[:2] == (503, "")


def test_an_engine_that_answers_badly_is_not_ready_at_once(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    pages.behave(health=503)
    eventually("not ready", lambda: not agent.ready, within=2)
    assert agent.facts()["engine"]["up"] is False
    pages.behave(health=200)
    eventually("ready again", lambda: agent.ready)


def test_a_frozen_engine_is_unknown_then_not_ready_and_keeps_its_name(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    agent.await_scrape()
    start_id = agent.facts()["engine"]["startId"]
    pages.running.send_signal(signal.SIGSTOP)
    eventually("stale", lambda: not agent.ready)
    frozen = agent.facts()
    assert frozen["engine"]["up"] is None, "silence is not a no"
    assert frozen["engine"]["startId"] == start_id
    assert frozen["numbers"]["running"] == 3, "old, and it says so"
    assert frozen["scrape"]["ageSeconds"] >= 1.5
    pages.running.send_signal(signal.SIGCONT)
    eventually("ready again", lambda: agent.ready)
    assert agent.facts()["engine"]["startId"] == start_id
    assert agent.metric("kvserving_agent_engine_starts_total") == 0


def test_sigterm_ends_readiness_at_once_and_facts_with_the_engine(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start()
    agent.env["KVSERVING_AGENT_STOP_TIMEOUT"] = "60s"
    agent.start()
    eventually("ready", lambda: agent.ready)
    agent.running.terminate()
    eventually("not ready", lambda: agent.status("/readyz") == 503, within=2)
    agent.await_scrape()
    assert agent.facts()["engine"]["up"] is True
    assert agent.facts()["engine"]["ready"] is False
    assert agent.running.poll() is None
    pages.end()
    assert agent.running.wait(timeout=5) == 0


def test_sigterm_with_the_engine_gone_ends_the_agent(pages: VllmPages, agent: Agent) -> None:
    agent.start()
    agent.running.terminate()
    assert agent.running.wait(timeout=3) == 0


def test_the_agent_stops_in_bounded_time_beside_a_live_engine(
    pages: VllmPages, agent: Agent
) -> None:
    pages.start()
    agent.start()
    eventually("ready", lambda: agent.ready)
    agent.running.terminate()
    assert agent.running.wait(timeout=3 + 3) == 0


def test_a_second_signal_ends_it_now(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.env["KVSERVING_AGENT_STOP_TIMEOUT"] = "60s"
    agent.start()
    eventually("ready", lambda: agent.ready)
    agent.running.terminate()
    eventually("not ready", lambda: agent.status("/readyz") == 503)
    agent.running.terminate()
    assert agent.running.wait(timeout=5) == 0
    assert TOKEN not in agent.log.read_text()
