"""Objects beside each other share nothing, whatever their names; one that ends is no storm."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.api import ApiError
from cluster.controlplane import ControlPlane
from cluster.pki import Identity
from kvserving_operator.kube import paths
from kvserving_operator.plan.naming import STATEFULSET_LIMIT, excess

from .harness import (
    GROUP,
    Cluster,
    Kubelet,
    Object,
    OperatorProcess,
    Served,
    example,
    wait_for,
)

pytestmark = pytest.mark.takes(50)

ONE, OTHER = "a", "a-b"
LONGEST = "l" * (STATEFULSET_LIMIT - len("-prefill"))
RETRIES = 8
"""Failed writes of a child of which nobody needs to be told: backoff doubles from 0.2 s."""


@pytest.fixture(scope="module")
def pair(served: Served) -> tuple[Cluster, dict[str, Object], dict[str, Object]]:
    """Two objects in one namespace, of which one's name begins with the other's."""
    cluster = served.cluster
    for name in (ONE, OTHER):
        cluster.create(example(name, decode__replicas=2))
    for name in (ONE, OTHER):
        cluster.settled(name)
    return cluster, cluster.children(ONE), cluster.children(OTHER)


Pair = tuple[Cluster, dict[str, Object], dict[str, Object]]


def test_two_objects_have_no_child_in_common(pair: Pair) -> None:
    _, ones, others = pair
    assert len(ones) == len(others) > 20
    assert not ones.keys() & others.keys()
    secrets = [dict(c["data"]) for n, c in {**ones, **others}.items() if n.startswith("secrets/")]
    assert {secret.pop("rotation-step") for secret in secrets} == {"c2V0dGxlZA=="}  # settled
    assert not set(secrets[0].values()) & set(secrets[1].values())


def test_no_child_refers_to_a_child_of_the_other(pair: Pair) -> None:
    _, ones, others = pair
    for mine, theirs in ((ones, others), (others, ones)):
        foreign = {key.partition("/")[2] for key in theirs} - {ONE, OTHER}
        foreign -= {key.partition("/")[2] for key in mine}
        for key, child in mine.items():
            words = set(_words({k: v for k, v in child.items() if k != "metadata"}))
            assert not words & foreign, key


def _words(value: Any) -> Iterator[str]:
    """The parts of all texts that could be names: what lies between dots, slashes and the like."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _words(key)
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str):
        yield from "".join(c if c.isalnum() or c == "-" else " " for c in value).split()


def test_every_selector_finds_pods_of_its_own_object_only(pair: Pair) -> None:
    cluster, ones, others = pair
    pods = cluster.list(paths.PODS)
    for name, children in ((ONE, ones), (OTHER, others)):
        for key, selector in _selectors(children):
            found = {
                pod["metadata"]["labels"]["kvserving.io/kvserving"]
                for pod in pods
                if selector.items() <= pod["metadata"]["labels"].items()
            }
            assert found == {name}, key


def _selectors(children: dict[str, Object]) -> Iterator[tuple[str, dict[str, str]]]:
    for key, child in children.items():
        spec = child.get("spec", {})
        if key.startswith("services/"):
            yield key, spec["selector"]
        elif key.startswith("networkpolicies/"):
            yield key, spec["podSelector"]["matchLabels"]
        elif "selector" in spec:
            yield key, spec["selector"]["matchLabels"]


def test_an_edit_and_the_end_of_one_leave_the_other_alone(pair: Pair) -> None:
    cluster, _, _ = pair
    before = _contents(cluster, OTHER)
    mark = cluster.mark()
    changes = {"decode": {"env": [{"name": "A", "value": "b"}]}, "kvCache": {"chunkTokens": 128}}
    cluster.patch(paths.KVSERVINGS, ONE, {"spec": changes})
    wait_for(
        lambda: cluster.status(ONE).get("observedGeneration") == 2, what="the edit is observed"
    )
    cluster.settled(ONE)
    cluster.delete(paths.KVSERVINGS, ONE)
    wait_for(
        lambda: not cluster.children(ONE) and not cluster.list(paths.PODS, ONE),
        what="garbage collection",
    )
    cluster.settled(OTHER)
    assert _contents(cluster, OTHER) == before
    assert {w.name for w in cluster.writes(mark)} & {c.partition("/")[2] for c in before} == set()


def _contents(cluster: Cluster, name: str) -> dict[str, Object]:
    return cluster.contents(name) | {
        f"pods/{pod['metadata']['name']}": {"uid": pod["metadata"]["uid"], "spec": pod["spec"]}
        for pod in cluster.list(paths.PODS, name)
    }


@pytest.fixture
def far(installed: ControlPlane) -> Iterator[Cluster]:
    """A namespace whose name is as long as one may be."""
    name = f"far-{uuid.uuid4().hex}-".ljust(62, "x") + "z"
    assert len(name) == 63
    installed.create_namespace(name)
    yield Cluster(installed, name)
    installed.api.delete(f"/api/v1/namespaces/{name}")


def test_the_longest_names_have_all_children_and_one_letter_more_is_refused(
    far: Cluster, tmp_path: Path
) -> None:
    assert (excess(LONGEST), excess(LONGEST + "l")) == (0, 1)
    short, identity = "s", Identity("far-operator", "far-operator", GROUP)
    far.plane.pki.add(identity, far.plane.url)  # a certificate's name ends at 64 characters
    kubeconfig = far.plane.pki.kubeconfig(identity)
    with OperatorProcess(far, tmp_path, kubeconfig=kubeconfig) as operator, Kubelet(far):
        for name in (short, LONGEST):
            far.create(example(name))
        for name in (short, LONGEST):
            far.settled(name)
        wanted = {key.replace(f"/{short}", "/", 1) for key in far.children(short)}
        assert {key.replace(f"/{LONGEST}", "/", 1) for key in far.children(LONGEST)} == wanted
        labels = [p["metadata"]["labels"] for p in far.list(paths.PODS, LONGEST)]
        revisions = [len(found.get("controller-revision-hash", "")) for found in labels]
        assert 60 < max(revisions) <= 63, "the longest label, with a hash of 8 to 10 characters"
        wait_for(lambda: "AllReady" in told_of(far, LONGEST), what="the event")
        with pytest.raises(ApiError, match="longer than 44 characters") as refused:
            far.create(example(LONGEST + "l"))
        assert refused.value.status == 422
        assert operator.unexpected == []


def told_of(cluster: Cluster, name: str) -> set[str]:
    events = cluster.list(paths.EVENTS)
    return {e["reason"] for e in events if e["involvedObject"]["name"] == name}


def test_a_namespace_that_ends_is_no_storm_and_others_are_served(
    installed: ControlPlane, tmp_path: Path
) -> None:
    """It ends in the middle of the work: some children are made, others are refused by then."""
    ending, staying = (f"{part}-{uuid.uuid4().hex[:8]}" for part in ("ending", "staying"))
    for namespace in (ending, staying):
        installed.create_namespace(namespace)
    going, here = Cluster(installed, ending), Cluster(installed, staying)
    operator = OperatorProcess(here, tmp_path, namespaces=[ending, staying])
    mark = installed.audit.mark()
    with operator.start(), Kubelet(here):
        operator.wait_leading()
        # Something that others have to let go keeps the namespace in its last state for a while.
        kept = {"name": "kept", "finalizers": ["example.com/kept"]}
        going.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": kept})
        for number in range(5):
            going.create(example(f"x{number}"))
        wait_for(lambda: going.list(paths.SERVICE_ACCOUNTS, "x0"), what="the first children")
        installed.api.delete(f"/api/v1/namespaces/{ending}")
        here.create(example("y"))
        here.settled("y")
        here.delete(paths.SERVICES, "y")
        wait_for(lambda: here.get(paths.SERVICES, "y"), what="a repair meanwhile")
        wait_for(
            lambda: not going.list(paths.KVSERVINGS) and not going.list(paths.STATEFULSETS),
            what="all but what is kept is gone",
        )
        going.patch(paths.CONFIGMAPS, "kept", {"metadata": {"finalizers": None}})
        wait_for(lambda: _gone(installed, ending), what="the namespace is gone")
        assert operator.unexpected == []
        assert operator.stop() == 0
    failed = Counter(
        f"{w.resource}/{w.name}" for w in going.writes(mark) if w.status >= 400
    )  # what the operator still wanted to make there
    assert all(count <= RETRIES for count in failed.values()), failed
    warned = Counter(record.get("name", "") for record in operator.log if record["level"] != "info")
    assert all(count <= RETRIES for count in warned.values()), warned
    installed.api.delete(f"/api/v1/namespaces/{staying}")


def _gone(plane: ControlPlane, namespace: str) -> bool:
    try:
        plane.api.get(f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        return error.status == 404
    return False
