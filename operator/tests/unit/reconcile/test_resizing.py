"""Which instances of a tier are told what they may hold; the telling itself is tests/tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from kvserving_operator.api import quantity
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.tier_client import Address
from kvserving_operator.plan.model import AuthMaterial, Manifest, Plan
from kvserving_operator.reconcile import resizing
from kvserving_operator.reconcile.resizing import Fit, resized
from tests.unit.stack import CPU_SPLIT, TIER, planned

from .test_tiers import RANKED, observed, pod

PLAN = planned({**CPU_SPLIT, **TIER, **RANKED})
DISKS = planned(
    {
        **CPU_SPLIT,
        **TIER,
        **RANKED,
        "kvCache.remote.persistence": {"volumeClaim": {"size": "1Gi"}},
    }
)
assert PLAN.tier is not None
WANTED = PLAN.tier.maxmemory_bytes
MEMORY = quantity.format_bytes(WANTED * 4 // 3)
SMALL = 64 << 20


class Pods:
    """A namespace with these pods."""

    def __init__(self, pods: Sequence[Manifest]) -> None:
        self._pods = pods

    async def list(self, *_: object, **__: object) -> Sequence[Manifest]:
        return self._pods


def instance(number: int, revision: str, memory: str = MEMORY) -> Manifest:
    made = pod(number)
    made["metadata"]["labels"]["controller-revision-hash"] = revision
    limits = {"limits": {"memory": memory}}
    return {**made, "spec": {"containers": [{"name": "valkey", "resources": limits}]}}


async def told(
    monkeypatch: pytest.MonkeyPatch, pods: Sequence[Manifest], limits: set[int]
) -> dict[str, int]:
    """What each instance was told, by its address."""
    found: dict[str, int] = {}

    async def tell(address: Address, _: AuthMaterial, limit: int) -> Fit:
        found[address.host] = limit
        return Fit(used=limit * 2, limit=limit)

    monkeypatch.setattr(resizing, "told", tell)
    assert await kept(PLAN, pods, limits) == {}
    return found


async def kept(
    plan: Plan, pods: Sequence[Manifest], limits: set[int] | None = None
) -> Mapping[str, str]:
    """Which instances must not be replaced yet."""
    workload: dict[str, Any] = {
        "kind": "StatefulSet",
        "metadata": {"name": plan.names.valkey, "uid": "sts-uid", "generation": 1},
        "spec": {"replicas": len(pods)},
        "status": {"updateRevision": "new", "observedGeneration": 1},
    }
    health = read_workload(workload, pods, label="valkey", desired=len(pods))
    seen = observed(plan, *pods)
    assert seen.child(paths.SECRETS, plan.names.auth) is not None
    client = cast("ApiClient", Pods(pods))
    return await resized(client, plan, seen, {Role.VALKEY: health}, limits or set())


async def test_who_has_the_limit_of_the_plan_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [instance(0, "new"), instance(1, "new")]
    assert await told(monkeypatch, pods, set()) == {}
    assert await told(monkeypatch, pods, {WANTED}) == {}


async def test_pods_of_an_old_revision_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [instance(0, "new"), instance(1, "old")]
    assert await told(monkeypatch, pods, {WANTED}) == {"10.0.0.1": WANTED}


async def test_a_change_that_is_taken_back_is_told_to_pods_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were told the smaller limit, and their revision is the present one again."""
    pods = [instance(0, "new"), instance(1, "new", "64Mi")]
    found = await told(monkeypatch, pods, {SMALL, WANTED})
    assert found == {"10.0.0.0": WANTED, "10.0.0.1": SMALL * 3 // 4}


LARGE = quantity.format_bytes(WANTED * 8)


@pytest.mark.parametrize(
    ("plan", "memory", "fit", "why"),
    [
        (DISKS, LARGE, Fit(used=1, limit=100), ""),
        (DISKS, LARGE, Fit(used=200, limit=100), "holds more than its next pod has room for"),
        (DISKS, LARGE, Fit(used=None, limit=100), "does not say what it holds"),
        (DISKS, LARGE, None, "does not say what it holds"),
        # It needs its larger pod, or another image.
        (DISKS, "64Mi", None, ""),
        (DISKS, MEMORY, Fit(used=None, limit=100), ""),
        # In memory it comes back empty.
        (PLAN, LARGE, None, ""),
    ],
)
async def test_on_disks_nobody_shrinks_of_whom_it_is_not_known_what_he_holds(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, memory: str, fit: Fit | None, why: str
) -> None:
    async def tell(*_: object) -> Fit | None:
        return fit

    monkeypatch.setattr(resizing, "told", tell)
    found = await kept(plan, [instance(0, "new"), instance(1, "old", memory)])
    assert found == ({"x-valkey-1": why} if why else {})


@pytest.mark.parametrize(("used", "fits"), [(90, True), (104, True), (106, False)])
def test_buffers_of_clients_are_no_reason_to_wait(used: int, *, fits: bool) -> None:
    assert Fit(used=used, limit=100).fits is fits
