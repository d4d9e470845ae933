"""Passes in which something that looks or acts fails, on a real API server.

The faults are put in by hand, because they are those that nobody knows of: passes run in this
process, with everything else as in the operator's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, cast

import pytest

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.paths import Key
from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.cache import ChildCache
from kvserving_operator.observe.gather import Watched
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.plan.model import Defaults, Manifest
from kvserving_operator.reconcile import PassResult, Reconciler, passes
from kvserving_operator.reconcile.parts import Part

from .harness import Cluster, Kubelet, Object, example, user_kubeconfig
from .tuned import Addressed

UNSEEN = {Part.TUNING, Part.STORES, Part.TRANSFERS, Part.VITALS, Part.TIER}


class OddAgents(Agents):
    """Agents that nobody can read."""

    error: Exception | None = None

    async def facts(
        self, pods: Iterable[Manifest], token: str, *, anew: bool = False
    ) -> dict[str, EngineFacts | None]:
        if self.error is not None:
            raise self.error
        return await super().facts(pods, token, anew=anew)


class OddTiers(Tiers):
    """The same of instances."""

    error: Exception | None = None

    async def look(self, *asked: Any, **more: Any) -> TierHealth:
        if self.error is not None:
            raise self.error
        return await super().look(*asked, **more)


class Passes:
    """One object's passes."""

    def __init__(self, cluster: Cluster, client: ApiClient) -> None:
        self.cluster = cluster
        self.agents, self.tiers = OddAgents(), OddTiers()
        reader = Watched(client, ChildCache(paths.WATCHED, [cluster.namespace]))
        defaults = Defaults(
            agent_image="agent",
            router_image="router",
            operator_namespace=cluster.namespace,
            operator_labels={"app": "operator"},
        )
        self._run = Reconciler(client, reader, defaults, agents=self.agents, tiers=self.tiers)

    async def __call__(self) -> PassResult:
        return await self._run(Key(self.cluster.namespace, "x"))

    def breaks(self, error: Exception | None) -> None:
        self.agents.error = self.tiers.error = error

    async def until_settled(self) -> None:
        """Roles can be ready before the last child is: what is told moves until all of them are."""
        for _ in range(1200):
            await self()
            told = {c["type"]: c for c in self.cluster.status("x").get("conditions", [])}
            if (
                told.get("Ready", {}).get("status") == "True"
                and told["Reconciling"]["status"] == "False"
                and told["Progressing"]["reason"] == "Settled"
            ):
                return
            await asyncio.sleep(0.1)  # controllers and kubelet have their turn
        raise AssertionError(str(self.cluster.status("x")))


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[Kubelet]:
    with Addressed(cluster) as made:
        # Where nobody answers: enough for a tier that is to be looked at.
        made.addresses = {f"x-valkey-{ordinal}": "127.0.0.1" for ordinal in range(8)}
        yield made


@pytest.fixture
async def run(cluster: Cluster, kubelet: Kubelet) -> AsyncIterator[Passes]:
    kubeconfig = user_kubeconfig(cluster, "operator")
    credentials = await Credentials.load(str(kubeconfig))
    async with ApiClient(credentials) as client:
        made = Passes(cluster, client)
        async with made.agents, made.tiers:
            cluster.create(example("x"))
            await made.until_settled()
            yield made


def says(cluster: Cluster) -> dict[str, tuple[str, str, str]]:
    found: list[Object] = cluster.status("x")["conditions"]
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}


def said_before(cluster: Cluster) -> None:
    """As if a predecessor had seen all this."""
    live = cluster.must_get(paths.KVSERVINGS, "x")
    told = {
        "RemoteTierReady": ("False", "KVRoundTripMismatch", "pod x-prefill-0: other bytes"),
        "TransferHealthy": ("False", "TransfersFail", "pod x-decode-0: transfers fail"),
        "TuningActive": ("True", "Active", "knobs are turned"),
    }
    conditions = [c for c in live["status"]["conditions"] if c["type"] not in told]
    for type_, (status, reason, message) in told.items():
        conditions.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": live["metadata"]["generation"],
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        )
    path = paths.KVSERVINGS.path(cluster.namespace, "x", "status")
    cluster.plane.api.merge_patch(path, {"status": {"conditions": conditions}})


async def test_what_cannot_be_looked_at_costs_only_itself(
    cluster: Cluster, run: Passes, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.patch(paths.KVSERVINGS, "x", {"spec": {"tuning": {"mode": "Apply"}}})
    await run.until_settled()
    said_before(cluster)
    before = says(cluster)
    cluster.delete(paths.SERVICES, "x")
    run.breaks(ZeroDivisionError("nobody thought of this"))
    # A new operator knows nothing but the status.
    fresh = Passes(cluster, run._run._client)
    fresh.breaks(run.agents.error)
    with caplog.at_level(logging.INFO):
        first, second = await fresh(), await fresh()
    assert set(first.failed) == UNSEEN
    assert first.ok
    assert first.requeue_after is not None
    assert first.requeue_after <= 60
    assert set(second.failed) == UNSEEN - {Part.TUNING}, "not due again yet"
    assert cluster.get(paths.SERVICES, "x"), "repaired all the same"
    assert says(cluster) == before
    logged = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(logged) == len(UNSEEN), "each once"
    assert all(r.exc_info and "x: " in r.message for r in logged)
    # What the pass itself knows is told as ever.
    cluster.patch(paths.KVSERVINGS, "x", {"spec": {"suspend": True}})
    await fresh()
    assert cluster.status("x")["phase"] == "Suspended"
    cluster.patch(paths.KVSERVINGS, "x", {"spec": {"suspend": False}})
    fresh.breaks(None)
    assert (await fresh()).failed == ()


async def test_an_api_server_that_cannot_be_reached_still_ends_the_pass(run: Passes) -> None:
    run.breaks(errors.UnreachableError(call="get secrets", cause=OSError("no route")))
    with pytest.raises(errors.UnreachableError):
        await run()
    run.breaks(errors.FencedError())
    with pytest.raises(errors.FencedError):
        await run()


async def test_what_cannot_be_done_is_told_and_tried_again(
    cluster: Cluster, run: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise KeyError("secret words")

    monkeypatch.setattr(passes, "replace_outdated", fails)
    failed = await run()
    assert failed.failed == (Part.REPLACING,)
    [why] = failed.retry
    assert why == "replacing pods failed: KeyError inside the operator, see its log"
    status, reason, message = says(cluster)["Progressing"]
    assert (status, reason, message) == ("False", "ApplyFailed", why)
    assert says(cluster)["Ready"][0] == "True", "it serves as before"
    monkeypatch.undo()
    well = await run()
    assert well.ok
    assert cast("float", well.requeue_after) > 0
