"""Which instances of a tier are told what they may hold; the telling itself is tests/tier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from kvserving_operator.api import quantity
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.tier_client import Address
from kvserving_operator.plan.model import AuthMaterial, Manifest
from kvserving_operator.reconcile import resizing
from kvserving_operator.reconcile.resizing import Fit, resized
from tests.unit.stack import CPU_SPLIT, TIER, planned

from .test_tiers import RANKED, observed, pod

PLAN = planned({**CPU_SPLIT, **TIER, **RANKED})
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
    workload: dict[str, Any] = {
        "kind": "StatefulSet",
        "metadata": {"name": PLAN.names.valkey, "uid": "sts-uid", "generation": 1},
        "spec": {"replicas": len(pods)},
        "status": {"updateRevision": "new", "observedGeneration": 1},
    }
    health = read_workload(workload, pods, label="valkey", desired=len(pods))
    seen = observed(PLAN, *pods)
    assert seen.child(paths.SECRETS, PLAN.names.auth) is not None
    client = cast("ApiClient", Pods(pods))
    assert await resized(client, PLAN, seen, {Role.VALKEY: health}, limits) == ()
    return found


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


@pytest.mark.parametrize(("used", "fits"), [(90, True), (104, True), (106, False)])
def test_buffers_of_clients_are_no_reason_to_wait(used: int, *, fits: bool) -> None:
    assert Fit(used=used, limit=100).fits is fits
