"""PUT /v1/tuning through the agent to the control contracts that the packages themselves serve."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .ports import GraniKV, Store
from .processes import QUICK, Agent, VllmPages, eventually

MODEL = {"R": 52_200.0, "s": 48_400.0, "B": 1.076e10, "te": 0.182, "tw": 0.148}
WANTED = {"mode": "Async", "minTokens": 512, "model": MODEL}
DEFAULTS = {"mode": "Auto", "minTokens": 0}


@pytest.fixture
def granikv(tmp_path: Path) -> Iterator[GraniKV]:
    served = GraniKV(tmp_path)
    served.serve("g1")
    yield served
    served.end()


@pytest.fixture
def beside(tmp_path: Path, pages: VllmPages, store: Store, granikv: GraniKV) -> Iterator[Agent]:
    urls = {"KVSERVING_AGENT_STORE_URL": store.url, "KVSERVING_AGENT_HOT_URL": granikv.url}
    agent = Agent(tmp_path, pages.port, **QUICK, **urls)
    pages.start()
    agent.start()
    eventually("known", lambda: agent.facts()["engine"]["startId"])
    yield agent
    agent.end()


def in_force(store: Store) -> dict[str, Any]:
    settings: dict[str, Any] = store.state()["settings"]
    return settings


def test_what_is_sent_is_in_force_and_read_back(beside: Agent, store: Store) -> None:
    status, answer = beside.tune(WANTED)
    assert (status, answer["store"]) == (200, {"startId": "s1", "settings": WANTED, "since": 100.0})
    assert answer["startId"] == beside.facts()["engine"]["startId"]
    assert answer["hot"] is None
    assert in_force(store) == WANTED


def test_facts_show_it_without_waiting_for_the_next_look(beside: Agent, store: Store) -> None:
    beside.end()
    store.close("")
    beside.env |= {"KVSERVING_AGENT_SCRAPE_PERIOD": "1m", "KVSERVING_AGENT_STALE_AFTER": "2m"}
    beside.start()
    eventually("looked at", lambda: beside.facts()["store"]["settings"] == DEFAULTS)
    assert beside.tune(WANTED)[0] == 200
    assert beside.facts()["store"]["settings"] == WANTED


def test_everything_is_replaced(beside: Agent, store: Store) -> None:
    assert beside.tune(WANTED)[0] == 200
    status, answer = beside.tune({"mode": "Bypass", "minTokens": 7})
    assert (status, answer["store"]["settings"]) == (200, {"mode": "Bypass", "minTokens": 7})
    assert in_force(store) == {"mode": "Bypass", "minTokens": 7}


def test_hot_is_asked_for_and_in_force_after_the_engine_s_next_step(
    beside: Agent, store: Store, granikv: GraniKV
) -> None:
    status, answer = beside.tune({"hotPercent": 25})
    assert (status, answer["store"]) == (200, None)
    assert answer["hot"]["settings"] == {"hotPercent": 10, "hotPercentWanted": 25}
    assert answer["hot"]["since"] == 1767225600.0
    granikv.step()
    told = {"hotPercent": 25, "hotPercentWanted": 25}
    eventually("in force", lambda: beside.facts()["hot"]["settings"] == told)
    assert beside.facts()["hot"]["counters"] == {"granikv_hot_used_slots": 64.0}
    assert in_force(store) == DEFAULTS


def test_without_the_token_nothing_changes(beside: Agent, store: Store, granikv: GraniKV) -> None:
    for wrong in ("", "Bearer", "Bearer wrong", "Basic the-right-token"):
        status, answer = beside.tune({**WANTED, "hotPercent": 25}, Authorization=wrong)
        assert (status, answer) == (401, {"error": "unauthorised"})
    assert in_force(store) == DEFAULTS
    assert granikv.state()["settings"]["hotPercentWanted"] == 10


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**WANTED, "minTokens": -1}, "minTokens"),
        ({**WANTED, "spare": 1}, "spare"),
        (b'{"mode": "Auto", "minTokens": NaN}', "(body)"),
        (b"{" + b" " * 1_000_000 + b"}", "(body)"),
        (b"", "(body)"),
        ({"mode": "Sync", "minTokens": 0, "hotPercent": 25}, "mode"),
        ({**WANTED, "hotPercent": 1}, "hotPercent"),
    ],
    ids=["negative", "unknown", "nan", "large", "empty", "no-capability", "granikv-s-own-limit"],
)
def test_what_is_wrong_changes_nothing_anywhere(
    beside: Agent, store: Store, granikv: GraniKV, body: object, field: str
) -> None:
    status, answer = beside.tune(body)
    assert (status, answer["field"]) == (422, field)
    assert answer["remedy"]
    assert in_force(store) == DEFAULTS
    assert granikv.state()["settings"]["hotPercentWanted"] == 10


def test_a_decision_for_another_start_of_the_engine_is_not_sent(
    beside: Agent, store: Store, pages: VllmPages
) -> None:
    first = beside.facts()["engine"]["startId"]
    assert beside.tune(WANTED, **{"If-Match": f'"{first}"'})[0] == 200
    pages.restart()
    status, answer = beside.tune({"mode": "Bypass", "minTokens": 0}, **{"If-Match": f'"{first}"'})
    assert (status, answer["reason"], answer["sent"]) == (409, "Restarted", [])
    assert answer["startId"] not in {None, first}
    assert in_force(store) == WANTED
    assert beside.tune(DEFAULTS, **{"If-Match": answer["startId"]})[0] == 200


def test_a_start_between_the_question_and_the_settings_is_told(beside: Agent, store: Store) -> None:
    store.end()
    store.serve("s1", "1", "s2")
    assert beside.tune(WANTED)[0] == 200
    status, answer = beside.tune({"mode": "Bypass", "minTokens": 0})
    assert (status, answer["control"], answer["startId"]) == (409, "store", "s2")
    assert answer["sent"] == []
    assert in_force(store) == WANTED


def test_a_silent_port_is_told_and_the_other_one_is_left_alone(
    beside: Agent, store: Store, granikv: GraniKV
) -> None:
    store.end()
    status, answer = beside.tune({**WANTED, "hotPercent": 25})
    assert (status, answer["reason"], answer["control"]) == (503, "Refused", "store")
    assert answer["sent"] == []
    assert granikv.state()["settings"]["hotPercentWanted"] == 10
    store.serve("s2")
    assert beside.tune(WANTED)[1]["store"]["startId"] == "s2"
    store.running.send_signal(signal.SIGSTOP)
    # Also those that come while others wait are answered before their clients give up (10 s).
    with ThreadPoolExecutor() as askers:
        answers = list(askers.map(beside.tune, [WANTED] * 3))
    assert [(s, a["reason"], a["sent"]) for s, a in answers] == [(503, "Timeout", [])] * 3
    store.running.send_signal(signal.SIGCONT)
    assert beside.tune(WANTED)[0] == 200


def test_an_engine_without_a_control_port_says_so(pages: VllmPages, agent: Agent) -> None:
    pages.start()
    agent.start()
    status, answer = agent.tune(WANTED)
    assert (status, answer["reason"], answer["control"]) == (503, "NoControl", "store")
    assert agent.tune({"hotPercent": 25})[1]["control"] == "hot"
