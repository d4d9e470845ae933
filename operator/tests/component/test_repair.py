"""Children are what the spec says, whoever touches them; and nothing is written without need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource

from .harness import Cluster, Served, example, wait_for

pytestmark = pytest.mark.takes(30)

NAME = "fix"
IDLE_SECONDS = 12


@pytest.fixture(scope="module")
def cluster(served: Served) -> Cluster:
    served.cluster.create(example(NAME))
    served.cluster.settled(NAME)
    return served.cluster


def uid(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["uid"])


Edit = tuple[Resource, str, dict[str, Any], Callable[[dict[str, Any]], Any]]
EDITS: dict[str, Edit] = {
    "replicas of a StatefulSet": (
        paths.STATEFULSETS,
        "fix-decode",
        {"spec": {"replicas": 3}},
        lambda o: o["spec"]["replicas"] == 1,
    ),
    "selector of a Service": (
        paths.SERVICES,
        "fix",
        {"spec": {"selector": {"kvserving.io/role": "nobody"}}},
        lambda o: o["spec"]["selector"]["kvserving.io/role"] == "router",
    ),
    "text in a ConfigMap": (
        paths.CONFIGMAPS,
        "fix-valkey",
        {"data": {"valkey.conf": "maxmemory 1\n"}},
        lambda o: "allkeys-lru" in o["data"]["valkey.conf"],
    ),
    "owner reference": (
        paths.CONFIGMAPS,
        "fix-lmcache",
        {"metadata": {"ownerReferences": []}},
        None,
    ),
    "label of a NetworkPolicy": (
        paths.NETWORK_POLICIES,
        "fix-valkey",
        {"metadata": {"labels": {"kvserving.io/role": "x"}}},
        lambda o: o["metadata"]["labels"]["kvserving.io/role"] == "valkey",
    ),
    "rules of a Role": (
        paths.ROLES,
        "fix-router",
        {"rules": []},
        lambda o: (o["rules"] or [{}])[0].get("resources") == ["pods"],
    ),
    "render hash": (
        paths.DEPLOYMENTS,
        "fix-router",
        {"metadata": {"annotations": {"kvserving.io/render-hash": "0"}}},
        lambda o: o["metadata"]["annotations"]["kvserving.io/render-hash"] != "0",
    ),
}


@pytest.mark.parametrize("edit", [e for e in EDITS if e != "owner reference"])
def test_edited_child_is_repaired(cluster: Cluster, edit: str) -> None:
    resource, name, patch, repaired = EDITS[edit]
    before = uid(cluster.must_get(resource, name))
    cluster.patch(resource, name, patch)
    wait_for(
        lambda: repaired(cluster.must_get(resource, name)),
        what=f"repair of {edit}",
        more=lambda: str(cluster.must_get(resource, name)),
    )
    assert uid(cluster.must_get(resource, name)) == before


def test_disowned_child_is_not_taken_back(cluster: Cluster) -> None:
    """Whoever removes the owner reference has taken the object: adopting it would be a theft."""
    resource, name, patch, _ = EDITS["owner reference"]
    cluster.patch(resource, name, patch)
    conflict = cluster.wait_condition(NAME, "Ready", "False", "NameConflict")
    assert f"ConfigMap {name} exists" in conflict["message"]
    assert not cluster.must_get(resource, name)["metadata"].get("ownerReferences")
    cluster.delete(resource, name)
    cluster.settled(NAME)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (paths.STATEFULSETS, "fix-decode"),
        (paths.DEPLOYMENTS, "fix-router"),
        (paths.SERVICES, "fix-valkey"),
        (paths.CONFIGMAPS, "fix-lmcache"),
        (paths.NETWORK_POLICIES, "fix-prefill"),
        (paths.ROLES, "fix-router"),
        (paths.ROLE_BINDINGS, "fix-router"),
        (paths.SERVICE_ACCOUNTS, "fix-router"),
    ],
    ids=str,
)
def test_deleted_child_comes_back(cluster: Cluster, resource: Resource, name: str) -> None:
    before = uid(cluster.must_get(resource, name))
    cluster.delete(resource, name)
    wait_for(
        lambda: (now := cluster.get(resource, name)) is not None and uid(now) != before,
        what=f"{resource} {name} again",
    )
    cluster.settled(NAME)


def test_lost_secret_is_made_anew_and_reaches_its_readers(cluster: Cluster) -> None:
    """Secrets are not watched: any other event, or the resync, brings the pass."""
    before = cluster.must_get(paths.SECRETS, "fix-auth")["data"]
    template = cluster.must_get(paths.STATEFULSETS, "fix-prefill")["spec"]["template"]["metadata"]
    valkey = cluster.must_get(paths.PODS, "fix-valkey-0")
    cluster.delete(paths.SECRETS, "fix-auth")
    cluster.patch(paths.KVSERVINGS, NAME, {"metadata": {"annotations": {"touched": "1"}}})
    after = wait_for(lambda: cluster.get(paths.SECRETS, "fix-auth"), what="the Secret")["data"]
    assert set(after) == set(before)
    assert after["agent-token"] != before["agent-token"]
    wait_for(
        lambda: (
            cluster.must_get(paths.STATEFULSETS, "fix-prefill")["spec"]["template"]["metadata"]
            != template
        ),
        what="a new config hash in the pod template",
    )
    wait_for(
        lambda: (
            cluster.must_get(paths.PODS, "fix-valkey-0")["metadata"]["uid"]
            != valkey["metadata"]["uid"]
        ),
        what="a Valkey that knows the new passwords",
    )
    cluster.settled(NAME)


def test_foreign_additions_are_left_alone(cluster: Cluster) -> None:
    addition = {"metadata": {"annotations": {"example.com/note": "ours"}}}
    mark = cluster.mark()
    cluster.patch(paths.SERVICES, "fix", addition)
    cluster.patch(paths.KVSERVINGS, NAME, {"metadata": {"labels": {"team": "a"}}})
    cluster.delete(paths.SERVICE_ACCOUNTS, "fix-router")  # the pass that repairs it saw both
    wait_for(lambda: cluster.get(paths.SERVICE_ACCOUNTS, "fix-router"), what="a later pass")
    cluster.settled(NAME)
    assert (
        cluster.must_get(paths.SERVICES, "fix")["metadata"]["annotations"]["example.com/note"]
        == "ours"
    )
    assert {w.resource for w in cluster.writes(mark)} <= {"serviceaccounts", "kvservings", "events"}


def test_idle_and_reapplied_objects_cost_no_write(cluster: Cluster) -> None:
    cluster.settled(NAME)
    mark = cluster.mark()
    spec = cluster.must_get(paths.KVSERVINGS, NAME)["spec"]
    quiet = 0

    def idle() -> bool:
        nonlocal quiet
        # The same manifest again, and a label that nothing reads: passes happen, writes do not.
        quiet += 1
        cluster.patch(
            paths.KVSERVINGS,
            NAME,
            {"spec": spec, "metadata": {"labels": {"beat": str(quiet // 20)}}},
        )
        return False

    with pytest.raises(AssertionError, match="not within"):
        wait_for(idle, timeout=IDLE_SECONDS, what="the end of idling")
    assert cluster.writes(mark) == []
