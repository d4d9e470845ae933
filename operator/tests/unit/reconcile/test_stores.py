"""Which engines a pass asks about their store, with which token; the agents are a real server."""

from __future__ import annotations

from typing import Any

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.store import StoreHealth
from kvserving_operator.plan.model import Plan
from kvserving_operator.reconcile.stores import store_health
from kvserving_operator.render import render
from tests.unit.observe.pods import pod
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
    made["status"]["podIP"] = "127.0.0.1"
    return made


def says(closed: str | None, *capabilities: str) -> dict[str, Any]:
    state = {"startId": "s", "ageSeconds": 1.0, "closed": closed, "lastError": None}
    return {"schema": 1, "capabilities": list(capabilities), "store": state}


async def health(server: Server, plan: Plan, *pods: dict[str, Any]) -> StoreHealth:
    async with Agents(port=server.port) as agents:
        return await store_health(agents, plan, observed(plan, *pods))


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


async def test_stock_engines_are_not_asked(server: Server):
    plan = planned({**SPLIT, **TIER})
    assert await health(server, plan, at(pod("x-prefill-0", role="prefill"))) == StoreHealth()
    assert server.tokens == []
