"""APIs that a cluster may lack: left out and noted, made when they come, let go when they go."""

import pytest

from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths

from .apiserver import Server
from .harness import Cluster, Served, example, wait_for
from .optional_apis import optional_apis

pytestmark = pytest.mark.takes(45)

WANTED = {
    paths.CERTIFICATES: "front-valkey-tls",
    paths.HTTP_ROUTES: "front",
    paths.POD_MONITORS: "front",
}


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Server:
    return Server(control_plane.kubeconfig)


def asking_for_all() -> dict:
    return example(
        "front",
        router__gateway={"parentRefs": [{"name": "edge"}], "hostnames": ["front.example"]},
        metrics={"podMonitor": {"labels": {"release": "prometheus"}}},
        kvCache__remote__tls={"mode": "CertManager", "issuerRef": {"name": "inside"}},
    )


def spec_valid(cluster: Cluster, reason: str) -> str:
    # An absent API is asked for again every 30 s, and an answer holds for 15 s.
    found = cluster.wait_condition("front", "SpecValid", "True", reason)
    return str(found["message"])


def test_absent_apis_are_noted_and_taken_up_when_they_come(served: Served, server: Server):
    cluster = served.cluster
    cluster.create(asking_for_all())
    said = spec_valid(cluster, "OptionalAPIAbsent")
    for resource in WANTED:
        assert f"{resource.kind} ({resource.api_version})" in said
    cluster.settled("front")
    with optional_apis(server):
        assert "left out" not in spec_valid(cluster, "Valid")
        for resource, name in WANTED.items():
            child = cluster.must_get(resource, name)
            (owner,) = child["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("KVServing", "front")
        _a_second_look_writes_nothing(served)
        _what_is_no_longer_asked_for_is_removed(cluster)
        _a_parent_that_the_server_refuses_touches_nothing(cluster)
    _touch_a_child(cluster, "2")
    assert "HTTPRoute" not in spec_valid(cluster, "OptionalAPIAbsent")
    cluster.settled("front")
    cluster.delete(paths.KVSERVINGS, "front")


def _a_second_look_writes_nothing(served: Served) -> None:
    before = versions(served.cluster)
    passes = served.operator.metric("kvserving_operator_passes_total")
    _touch_a_child(served.cluster, "1")
    wait_for(
        lambda: served.operator.metric("kvserving_operator_passes_total") > passes,
        what="another pass",
    )
    assert versions(served.cluster) == before


def _touch_a_child(cluster: Cluster, value: str) -> None:
    """An event of a child brings a pass, which looks at all of them."""
    annotations = {"annotations": {"x.example/a": value}}
    cluster.patch(paths.CONFIGMAPS, "front-valkey", {"metadata": annotations})


def versions(cluster: Cluster) -> dict[str, str]:
    return {
        str(resource): cluster.must_get(resource, name)["metadata"]["resourceVersion"]
        for resource, name in WANTED.items()
    }


def _what_is_no_longer_asked_for_is_removed(cluster: Cluster) -> None:
    nothing = {"parentRefs": [], "hostnames": []}
    cluster.patch(paths.KVSERVINGS, "front", {"spec": {"router": {"gateway": nothing}}})
    wait_for(lambda: cluster.get(paths.HTTP_ROUTES, "front") is None, what="the HTTPRoute is gone")
    assert cluster.get(paths.POD_MONITORS, "front") is not None


def _a_parent_that_the_server_refuses_touches_nothing(cluster: Cluster) -> None:
    cluster.create(example("refused", router__gateway={"parentRefs": [{"name": "g", "wrong": 1}]}))
    found = cluster.wait_condition("refused", "SpecValid", "False", "RejectedByServer")
    assert "HTTPRoute refused" in found["message"]
    assert cluster.children("refused") == {}
    cluster.delete(paths.KVSERVINGS, "refused")
