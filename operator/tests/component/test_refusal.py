"""What cannot be served is said, and what runs is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.api import ApiError
from kvserving_operator.kube import paths

from .harness import Cluster, Object, Served, example, wait_for

pytestmark = pytest.mark.takes(30)


def contents(cluster: Cluster, name: str) -> dict[str, Object]:
    """The children, and which pods there are."""
    return cluster.contents(name) | {
        p["metadata"]["name"]: {"uid": p["metadata"]["uid"]} for p in cluster.list(paths.PODS, name)
    }


def engine_uids(cluster: Cluster, name: str) -> set[str]:
    """Pods of StatefulSets: the router's may come and go."""
    return {
        p["metadata"]["uid"]
        for p in cluster.list(paths.PODS, name)
        if p["metadata"]["labels"]["kvserving.io/role"] != "router"
    }


REFUSED = {"spec": {"engine": {"extraArgs": ["--port", "1234"]}}}


def test_a_spec_refused_from_the_start_makes_nothing(served: Served) -> None:
    cluster = served.cluster
    cluster.create(example("never", engine__extraArgs=["--port", "1234"]))
    invalid = cluster.wait_condition("never", "SpecValid", "False")
    assert "--port" in invalid["message"]
    cluster.wait_condition("never", "Stalled", "True")
    cluster.wait_condition("never", "Ready", "False")
    assert cluster.status("never")["phase"] == "Invalid"
    assert cluster.children("never") == {}


def test_a_spec_refused_later_touches_nothing_and_its_repair_is_picked_up(served: Served) -> None:
    cluster = served.cluster
    cluster.create(example("later"))
    cluster.settled("later")
    before = contents(cluster, "later")
    cluster.patch(paths.KVSERVINGS, "later", REFUSED)
    cluster.wait_condition("later", "SpecValid", "False")
    status = cluster.status("later")
    assert status["observedGeneration"] == 2
    assert (status["decode"]["ready"], status["tier"]["instances"]) == (1, 4)
    assert cluster.condition("later", "DecodeReady")["status"] == "True"
    assert contents(cluster, "later") == before
    cluster.patch(paths.KVSERVINGS, "later", {"spec": {"engine": {"extraArgs": None}}})
    cluster.settled("later")
    assert contents(cluster, "later") == before


@pytest.mark.parametrize("kind", ["operator", "server"])
def test_under_a_refusal_the_last_good_spec_is_repaired(served: Served, kind: str) -> None:
    cluster, name = served.cluster, f"good-{kind}"
    cluster.create(example(name))
    cluster.settled(name)
    before = engine_uids(cluster, name)
    bad: dict[str, Any] = REFUSED
    if kind == "server":
        odd = {"spec": {"tolerations": [{"key": "a", "operator": "Nonsense"}]}}
        bad = {"spec": {"decode": {"podTemplate": odd}}}
    # What else the refused spec asks for is not done by halves.
    bad = {"spec": {**bad["spec"], "router": {"replicas": 3}}}
    cluster.patch(paths.KVSERVINGS, name, bad)
    cluster.wait_condition(name, "SpecValid", "False")
    cluster.delete(paths.SERVICES, f"{name}-decode")
    scale = {"spec": {"replicas": 0}}
    cluster.patch(paths.DEPLOYMENTS, f"{name}-router", scale)
    wait_for(lambda: cluster.get(paths.SERVICES, f"{name}-decode"), what="the Service made again")
    wait_for(
        lambda: cluster.must_get(paths.DEPLOYMENTS, f"{name}-router")["spec"]["replicas"] == 1,
        what="the router scaled back to what was accepted",
    )
    assert engine_uids(cluster, name) == before
    cluster.delete(paths.KVSERVINGS, name)


def test_features_to_come_are_not_available_yet(served: Served) -> None:
    cluster = served.cluster
    cluster.create(example("soon", engine__features=["GraniKV"]))
    cluster.wait_condition("soon", "SpecValid", "False", "NotAvailableYet")
    assert cluster.children("soon") == {}


def test_a_pod_template_that_the_server_rejects_makes_nothing(served: Served) -> None:
    cluster = served.cluster
    template = {"spec": {"tolerations": [{"key": "a", "operator": "Nonsense"}]}}
    cluster.create(example("odd", decode__podTemplate=template))
    rejected = cluster.wait_condition("odd", "SpecValid", "False", "RejectedByServer")
    assert "StatefulSet odd-decode" in rejected["message"]
    assert "Nonsense" in rejected["message"]
    assert cluster.children("odd") == {}
    cluster.patch(paths.KVSERVINGS, "odd", {"spec": {"decode": {"podTemplate": None}}})
    cluster.settled("odd")


def test_an_unknown_field_in_a_pod_template_is_rejected_too(served: Served) -> None:
    cluster = served.cluster
    template = {"spec": {"tolerationz": []}}
    cluster.create(example("typo", decode__podTemplate=template))
    rejected = cluster.wait_condition("typo", "SpecValid", "False")
    assert "tolerationz" in rejected["message"]
    assert cluster.children("typo") == {}


FOREIGN: dict[str, tuple[paths.Resource, dict[str, Any]]] = {
    "taken-valkey": (paths.CONFIGMAPS, {"data": {"theirs": "1"}}),
    "taken": (paths.SERVICES, {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
    "taken-auth": (paths.SECRETS, {"stringData": {"agent-token": "theirs"}}),
}


@pytest.mark.parametrize("child", FOREIGN)
def test_a_foreign_object_with_our_childs_name_is_never_touched(served: Served, child: str) -> None:
    cluster = served.cluster
    resource, content = FOREIGN[child]
    theirs = {"apiVersion": resource.api_version, "kind": resource.kind} | content
    before = cluster.create(theirs | {"metadata": {"name": child}})
    cluster.create(example("taken"))
    conflict = cluster.wait_condition("taken", "Ready", "False", "NameConflict")
    assert f"{resource.kind} {child} exists" in conflict["message"]
    cluster.wait_condition("taken", "Stalled", "True", "NameConflict")
    assert cluster.must_get(resource, child) == before
    assert cluster.children("taken") == {}, "nothing is half made"
    cluster.delete(resource, child)
    cluster.patch(paths.KVSERVINGS, "taken", {"metadata": {"annotations": {"try": "again"}}})
    cluster.settled("taken")
    cluster.delete(paths.KVSERVINGS, "taken")
    wait_for(lambda: not cluster.children("taken"), what="garbage collection")


def test_the_apiserver_itself_refuses_what_the_schema_can_say(served: Served) -> None:
    with pytest.raises(ApiError, match="HTTP 422"):
        served.cluster.create(example("Not_A_Name"))
