"""What the store says of itself, read with suspicion; and what becomes of it in the facts."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from kvserving_sharded_store import export
from kvserving_sharded_store.control import Control
from kvserving_sharded_store.judge import Judge
from kvserving_sharded_store.policy import Model, Rules, Wanted

from kvserving_agent import store
from kvserving_agent.facts import Fault, Snapshot
from kvserving_agent.local import LocalError
from tests.unit.agent.test_facts import NOW, WELL, render

MODEL = Model(
    rate=52_000, token_bytes=48_400, bandwidth=1e10, engine_fixed=0.18, request_fixed=0.15
)


def body(**more: object) -> dict[str, object]:
    """A state as the package itself gives it, with some keys replaced."""
    control = Control(
        start_id="s1",
        capabilities=frozenset({"ShardedStore", "RankedRemote"}),
        counters=lambda: {"get_done": 3.0, "busy_share": 0.51239, "held_bytes": 7.0},
        now=lambda: 100.0,
        rules=Rules(wanted=Wanted.ASYNC, min_tokens=512, model=MODEL),
        closed=lambda: "KVRoundTripMismatch",
    )
    answer: dict[str, object] = json.loads(json.dumps(dict(control.state().body)))
    return answer | more


def test_a_state_of_the_package_is_read_whole() -> None:
    state = store.parse(body(), NOW)
    assert state.start == "s1"
    assert state.capabilities == ("RankedRemote", "ShardedStore")
    assert state.closed == "KVRoundTripMismatch"
    model = {"R": 52_000, "s": 48_400, "B": 1e10, "te": 0.18, "tw": 0.15}
    assert state.settings == {"mode": "Async", "minTokens": 512, "model": model}
    assert state.counters == {"get_done": 3, "busy_share": 0.5124}, "held_bytes is left to /metrics"
    assert (state.since, state.at) == (100.0, NOW)


@pytest.mark.parametrize(
    "worse",
    [
        {"startId": None},
        {"startId": "a b"},
        {"startId": "x" * 65},
        {"capabilities": None},
        {"capabilities": {"ShardedStore": 1}},
        {"capabilities": ["x"] * 300},
        {"closed": 7},
        {"closed": "two words"},
    ],
)
def test_what_is_no_state_is_no_answer(worse: dict[str, object]) -> None:
    with pytest.raises(LocalError) as raised:
        store.parse(body(**worse), NOW)
    assert raised.value.fault is Fault.MALFORMED


def test_the_counters_of_facts_are_counters_of_the_package() -> None:
    made = Judge(world=1, rules=Rules, now=lambda: 0.0)
    known = {*export._COUNTERS, *export._GAUGES, *made.counts()}
    assert known >= store._STORE


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, 10**400, True, "3", None, [3]])
def test_unreadable_parts_are_left_out(bad: object) -> None:
    state = store.parse(
        body(
            counters={"get_done": bad, "loads": 1, "decision_two words": 1},
            settings={"mode": bad, "minTokens": bad, "model": {"R": bad, "s": 2}},
            since=bad,
            capabilities=["ShardedStore", bad],
        ),
        NOW,
    )
    assert state.counters == {"loads": 1}
    assert state.since is None
    readable = {"mode": bad} if isinstance(bad, str) else {}
    assert state.settings == {**readable, "model": {"s": 2}}
    assert "ShardedStore" in state.capabilities


def test_facts_hold_the_state_where_there_is_a_store() -> None:
    known = replace(WELL, store=store.parse(body(), NOW - 3))
    shown = render(known, stores=True)
    assert shown["capabilities"] == ["RankedRemote", "ShardedStore"]
    assert shown["store"]["closed"] == "KVRoundTripMismatch"
    assert shown["store"]["ageSeconds"] == 3.0
    assert shown["store"]["lastError"] is None
    json.dumps(shown, allow_nan=False)
    assert render(WELL)["store"] is None


def test_a_store_that_never_answered_is_told_from_none() -> None:
    shown = render(Snapshot(store_error=Fault.REFUSED), stores=True)
    assert shown["store"] == {
        "startId": None,
        "closed": None,
        "settings": None,
        "since": None,
        "counters": None,
        "recent": None,
        "ageSeconds": None,
        "stale": None,
        "lastError": "Refused",
    }
    assert shown["capabilities"] == []
