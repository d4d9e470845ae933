"""Which engines a pass asks about their store, with which token; the agents are a real server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.store import StoreHealth
from kvserving_operator.plan.model import Plan
from kvserving_operator.reconcile.stores import Stores, hot_health
from kvserving_operator.render import render
from tests.unit.observe.pods import address_of, pod, statefulset
from tests.unit.observe.test_agents import Server, server
from tests.unit.stack import AUTH, SPLIT, TIER, one, owner, planned

__all__ = ["server"]  # the fixture

FEATURES = ["ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"]
STORE = {**SPLIT, **TIER, "engine.features": FEATURES}


def observed(plan: Plan, *pods: dict[str, Any]) -> Observed:
    secret = dict(one(render(plan, AUTH, owner()), "Secret", "x-auth"))
    return Observed(
        key=Key("default", "x"), uid="uid-1", children={paths.SECRETS: (secret,)}, pods=pods
    )


def at(made: dict[str, Any]) -> dict[str, Any]:
    made["status"]["podIP"] = address_of(made["metadata"]["uid"])
    return made


def says(closed: str | None, *capabilities: str) -> dict[str, Any]:
    state = {"startId": "s", "ageSeconds": 1.0, "closed": closed, "lastError": None}
    return {"schema": 1, "capabilities": list(capabilities), "store": state}


async def health(server: Server, plan: Plan, *pods: dict[str, Any]) -> StoreHealth:
    async with Agents(port=server.port) as agents:
        return await Stores(agents)(plan, observed(plan, *pods))


async def test_ready_pods_of_the_role_that_carries_the_store_are_asked(server: Server):
    server.answer = says(None, *FEATURES)
    pods = (
        at(pod("x-prefill-0", role="prefill")),
        at(pod("x-prefill-1", role="prefill", ready=False)),
        at(pod("x-prefill-2", role="prefill", terminating=True)),
        at(pod("x-decode-0", role="decode")),
    )
    found = await health(server, planned(STORE), *pods)
    assert (found.faults, found.waiting) == ((), False)
    assert server.tokens == [f"Bearer {AUTH.agent_token}"]


async def test_without_a_prefill_role_decode_carries_it(server: Server):
    server.answer = says("KVRoundTripMismatch", *FEATURES)
    plan = planned({**TIER, "engine.features": FEATURES})
    [fault] = (await health(server, plan, at(pod("x-decode-0", role="decode")))).faults
    assert fault.reason is Reason.KV_ROUND_TRIP_MISMATCH


async def test_every_promise_is_asked_for(server: Server):
    server.answer = says(None, *FEATURES[:-1])
    [fault] = (await health(server, planned(STORE), at(pod("x-prefill-0", role="prefill")))).faults
    assert fault.reason is Reason.FEATURE_MISSING
    assert "LoadOrRecompute" in fault.message


def workload(**more: Any) -> dict[str, Any]:
    made = statefulset(**more)
    made["metadata"] |= {
        "name": "x-prefill",
        "namespace": "default",
        "ownerReferences": [{"uid": "uid-1", "controller": True}],
    }
    return made


async def with_workload(server: Server, made: dict[str, Any], *pods: dict[str, Any]) -> StoreHealth:
    plan = planned(STORE)
    seen = observed(plan, *pods)
    seen = replace(seen, children={**seen.children, paths.STATEFULSETS: (made,)})
    async with Agents(port=server.port) as agents:
        return await Stores(agents)(plan, seen)


@pytest.mark.parametrize("made", [workload(), workload(generation=2)])
async def test_an_engine_that_is_yet_to_be_replaced_promised_nothing_of_now(
    server: Server, made: dict[str, Any]
):
    old = at(pod("x-prefill-0", role="prefill", revision="old"))
    server.answer = says(None, *FEATURES[:-1])
    assert await with_workload(server, made, old) == StoreHealth()
    server.answer = says("KVRoundTripMismatch", *FEATURES)
    [fault] = (await with_workload(server, made, old)).faults
    assert fault.reason is Reason.KV_ROUND_TRIP_MISMATCH


async def test_one_that_has_been_replaced_did(server: Server):
    server.answer = says(None, *FEATURES[:-1])
    new = at(pod("x-prefill-0", role="prefill"))
    [fault] = (await with_workload(server, workload(), new)).faults
    assert fault.reason is Reason.FEATURE_MISSING


async def test_the_token_is_for_the_pods_of_the_workload_alone(server: Server):
    server.answer = says("KVRoundTripMismatch")
    stranger = at(pod("x-prefill-0", role="prefill", owner="somebody"))
    assert await with_workload(server, workload(), stranger) == StoreHealth()
    assert server.tokens == []


async def test_stock_engines_are_not_asked(server: Server):
    plan = planned({**SPLIT, **TIER})
    assert await health(server, plan, at(pod("x-prefill-0", role="prefill"))) == StoreHealth()
    assert server.tokens == []


HOT = {
    "engine.type": "SGLang",
    "router.type": "SMG",
    "engine.features": ["GraniKV"],
    "kvCache.hot": {"mode": "Auto"},
}


def hot_says(*capabilities: str, start: str | None = "h", error: str | None = None) -> Any:
    state = {"startId": start, "ageSeconds": 1.0 if start else None, "lastError": error}
    return {"schema": 1, "capabilities": list(capabilities), "store": None, "hot": state}


async def hot(server: Server, changes: dict[str, Any]) -> StoreHealth:
    plan = planned(changes)
    pods = observed(plan, at(pod("x-decode-0", role="decode")))
    async with Agents(port=server.port) as agents:
        return await hot_health(agents, plan, pods)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (hot_says("GraniKV", "HotResize"), None),
        (hot_says("HotResize"), "does not report GraniKV"),
        (hot_says(start=None, error="Refused"), "has no GraniKV (nobody answers"),
        (hot_says(start=None), ""),
        (hot_says(start=None, error="Timeout"), ""),
    ],
)
async def test_an_engine_that_should_have_hot_pages_is_asked_for_them(
    server: Server, answer: dict[str, Any], message: str | None
):
    server.answer = answer
    found = await hot(server, HOT)
    assert found.waiting is (message == "")  # not known yet: to be asked again
    assert len(found.faults) == bool(message)
    for fault in found.faults:
        assert fault.reason is Reason.FEATURE_MISSING
        assert message
        assert message in fault.message
        assert "pod x-decode-0" in fault.message
        assert "serves without HOT" in fault.message


async def test_without_hot_nobody_is_asked_for_it(server: Server):
    assert await hot(server, {**HOT, "kvCache.hot": {"mode": "Off"}}) == StoreHealth()
    assert server.tokens == []


class Time:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_fault_outlives_the_silence_of_its_agent_for_a_while(server: Server):
    time, plan = Time(), planned(STORE)
    first = at(pod("x-prefill-0", role="prefill"))
    async with Agents(port=server.port, clock=time) as agents:
        stores = Stores(agents, clock=time)

        async def health(one: dict[str, Any], after: float) -> StoreHealth:
            time.now += after
            return await stores(plan, observed(plan, one))

        server.answer = says("KVRoundTripMismatch", *FEATURES)
        known = await health(first, 0)
        server.answer = {"schema": 0}  # no facts
        assert [await health(first, 61) for _ in range(9)] == [known] * 9
        [lost] = (await health(first, 61)).faults
        assert lost.reason is Reason.AGENT_UNREACHABLE
        assert known.faults[0].message in lost.message
        assert (await health(first, 6000)).faults == (lost,)
        successor = {**first, "metadata": {**first["metadata"], "uid": "another"}}
        assert await health(successor, 61) == StoreHealth()
        server.answer = says(None, *FEATURES)
        assert await health(first, 61) == StoreHealth()
        server.answer = {"schema": 0}
        assert await health(first, 6000) == StoreHealth()
