"""Where a look goes, and who logs in there: from plan, pods and Secrets."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.tier import NoInstancesError, Tiers
from kvserving_operator.observe.tier_client import Login, Trust
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.observe.tier_probe import Instance
from kvserving_operator.plan.model import Manifest, Plan, Refusal
from kvserving_operator.reconcile.tiers import tier_health
from kvserving_operator.render.secret import auth_secret
from tests.unit.stack import AUTH, CPU, CPU_SPLIT, TIER, planned

UID = "uid-1"
RANKED = {
    "engine.features": ["RankedRemote", "ShardedStore", "AsyncLoading", "LoadOrRecompute"],
    "prefill.parallelism": {"prefillContext": 4},
}
PEM = "-----BEGIN CERTIFICATE-----\n"


class Secrets:
    """The Secrets of a namespace, and which of them were read."""

    def __init__(self, **secrets: dict[str, str | bytes]) -> None:
        self._secrets = secrets
        self.read: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        assert (resource, namespace) == (paths.SECRETS, "n")
        self.read.append(name)
        found = self._secrets.get(name.replace("-", "_"))
        if found is None:
            return None
        return {"data": {key.replace("ca_crt", "ca.crt"): encoded(v) for key, v in found.items()}}

    async def owned(self, resource: Resource, key: Key) -> Sequence[Manifest]:
        raise AssertionError("a look reads Secrets by name alone")


def encoded(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


class Asked(Tiers):
    """Keeps what a look would be at."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: frozenset[str] | None = None
        self.ready = frozenset[str]()
        self.interval = 0.0
        self.instances: Sequence[Instance] = ()

    async def look(
        self,
        key: Key,
        uid: str,
        targets: frozenset[str],
        interval: float,
        found: Any,
        *,
        ready: frozenset[str] = frozenset(),
    ) -> TierHealth:
        self.targets, self.ready, self.interval = targets, ready, interval
        self.instances = await found()
        return TierHealth(asked=True)


def pod(number: int, *, owner: str = "sts-uid", **status: Any) -> Manifest:
    return {
        "metadata": {
            "name": f"x-valkey-{number}",
            "uid": f"pod-{number}",
            "labels": {meta.LABEL_ROLE: "valkey"},
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "status": {"phase": "Running", "podIP": f"10.0.0.{number}", **status},
    }


READY = [{"type": "Ready", "status": "True"}]


def owned(manifest: Manifest) -> Manifest:
    reference = {"uid": UID, "controller": True}
    metadata = {**manifest["metadata"], "ownerReferences": [reference]}
    return {**manifest, "metadata": metadata}


def observed(plan: Plan, *pods: Manifest) -> Observed:
    workload = {"metadata": {"name": plan.names.valkey, "uid": "sts-uid"}, "kind": "StatefulSet"}
    return Observed(
        key=Key("n", "x"),
        uid=UID,
        children={
            paths.STATEFULSETS: (owned(workload),),
            paths.SECRETS: (owned(auth_secret(plan, AUTH)),),
        },
        pods=pods,
    )


async def looked(plan: Plan, secrets: Secrets, *pods: Manifest) -> Asked:
    tiers = Asked()
    await tier_health(tiers, secrets, plan, observed(plan, *pods))
    return tiers


def external(url: str, **changes: Any) -> Plan:
    given = {"urlTemplate": url, **changes.pop("external", {})}
    remote = {"type": "External", "external": given}
    return planned({**CPU_SPLIT, "model.attention": "MLA", "kvCache.remote": remote, **changes})


async def test_a_managed_tier_is_its_own_running_pods() -> None:
    plan = planned({**CPU_SPLIT, **TIER, **RANKED, "tuning.interval": "90s"})
    secrets = Secrets()
    leaving = pod(3)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    pods = [pod(0), pod(1, podIP=""), pod(2, owner="another"), leaving, pod(4), pod(7)]
    asked = await looked(plan, secrets, *pods)
    assert asked.interval == 90
    assert (asked.targets, asked.ready) == ({"pod-0"}, frozenset())
    [instance] = asked.instances
    assert (instance.identity, instance.place.name) == ("pod-0", "pod x-valkey-0")
    assert (instance.address.host, instance.address.port) == ("10.0.0.0", 6379)
    assert instance.address.trust is None
    assert instance.engine == Login(user="engine", password=AUTH.engine_password)
    assert instance.operator == Login(user="operator", password=AUTH.operator_password)
    assert instance.secret == "x-auth"
    assert secrets.read == [], "its passwords were read with the children"


async def test_instances_that_the_kubelet_finds_ready_are_known() -> None:
    plan = planned({**CPU_SPLIT, **TIER, **RANKED})
    asked = await looked(plan, Secrets(), pod(0), pod(1, conditions=READY))
    assert (asked.targets, asked.ready) == ({"pod-0", "pod-1"}, {"pod-1"})


async def test_a_managed_tier_with_tls_is_known_by_the_names_of_its_pods() -> None:
    tls = {"mode": "Secret", "secretRef": {"name": "certs"}}
    remote = {**TIER["kvCache.remote"], "tls": tls}  # type: ignore[dict-item]
    plan = planned({**CPU_SPLIT, **TIER, **RANKED, "kvCache.remote": remote})
    asked = await looked(plan, Secrets(certs={"ca_crt": PEM}), pod(0), pod(1))
    assert [i.address.trust for i in asked.instances] == [
        Trust(name=f"x-valkey-{n}.x-valkey.{plan.namespace}.svc", authority=PEM) for n in (0, 1)
    ]


async def test_without_pods_there_is_nothing_to_look_at_yet() -> None:
    plan = planned({**CPU_SPLIT, **TIER})
    tiers = Asked()
    health = await tier_health(tiers, Secrets(), plan, observed(plan))
    assert (health.asked, health.seen, tiers.targets) == (True, False, None)


async def test_no_tier_and_no_plan_are_not_looked_at() -> None:
    plan = planned(CPU)
    managed = planned({**CPU_SPLIT, **TIER})
    for what in (plan, Refusal(faults=())):
        seen = await tier_health(Asked(), Secrets(), what, observed(managed, pod(0)))
        assert seen == TierHealth()


async def test_an_external_tier_is_its_addresses() -> None:
    plan = external("valkeys://cache-{ordinal}.example:6380", **RANKED)
    asked = await looked(plan, Secrets())
    assert asked.targets == {f"cache-{n}.example:6380" for n in range(4)}
    assert [(i.place.ordinal, i.place.count) for i in asked.instances] == [(n, 1) for n in range(4)]
    last = asked.instances[-1]
    assert (last.address.host, last.address.port) == ("cache-3.example", 6380)
    assert last.address.trust == Trust(name="cache-3.example")
    assert (last.engine, last.operator) == (None, None)


async def test_an_address_for_all_ranks_is_looked_at_once() -> None:
    asked = await looked(external("resp://cache.example:1", **RANKED), Secrets())
    [instance] = asked.instances
    assert (instance.place.ordinal, instance.place.count) == (0, 4)


LOGIN = {"authSecretRef": {"name": "cache"}}


@pytest.mark.parametrize(
    ("features", "password"), [(RANKED, "a%40b"), ({}, "a@b")], ids=["sharded store", "stock"]
)
async def test_a_password_is_quoted_for_the_client_that_puts_it_into_a_url(
    features: dict[str, Any], password: str
) -> None:
    plan = external("resp://cache.example:1", external=LOGIN, **features)
    asked = await looked(plan, Secrets(cache={"username": "u", "password": "a%40b"}))
    assert asked.instances[0].engine == Login(user="u", password=password)
    assert asked.instances[0].secret == "cache"


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        (Secrets(), "Secret cache does not exist"),
        (Secrets(cache={"username": "u"}), "Secret cache has no key password with text in it"),
        (
            Secrets(cache={"username": b"\xff", "password": "p"}),
            "Secret cache has no key username with text in it",
        ),
    ],
    ids=["no Secret", "no key", "no text"],
)
async def test_secrets_that_are_not_as_they_should_be(secrets: Secrets, said: str) -> None:
    plan = external("resp://cache.example:1", external=LOGIN)
    with pytest.raises(NoInstancesError) as found:
        await looked(plan, secrets)
    assert str(found.value) == said
