"""Promise: an edit changes exactly its children and replaces exactly their pods, one at a time.

On an object with real pods and with a neighbour in its namespace. Every field of the API is edited
in operator/tests: the rows of unit/render/edits.py, of which a few are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from conftest import TOLD_TIMEOUT, Serving, example, serve
from stack import pods
from stack.install import Testbed
from stack.kubectl import Kubectl, Object, eventually, wait_for
from stack.watch import PodWatch

NAME, NEIGHBOUR = "edited", "beside"
OF = "kvserving.io/kvserving="
KINDS = (
    "statefulsets,deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,"
    "networkpolicies,poddisruptionbudgets"
)
COUNTING = {"StatefulSet", "Deployment", "PodDisruptionBudget"}
"""Kinds whose status follows pods: of these the generation tells whether they were changed."""
ACCEPTED = f"ConfigMap/{NAME}-accepted"


@dataclass(frozen=True)
class Row:
    """An edit, the children that it changes, and the roles whose pods it replaces."""

    field: str
    value: Any
    children: frozenset[str]
    roles: frozenset[str] = frozenset()

    def patch(self) -> Object:
        """The edit as a merge patch."""
        patch: Any = self.value
        for part in reversed(self.field.split(".")):
            patch = {part: patch}
        return {"spec": patch}


PEER = {"podSelector": {"matchLabels": {"app": "client"}}}
ROWS = (
    Row("router.service.annotations", {"a": "b"}, frozenset({f"Service/{NAME}"})),
    Row("networkPolicy.clients", [PEER], frozenset({f"NetworkPolicy/{NAME}-router"})),
    Row(
        "decode.env",
        [{"name": "A", "value": "b"}],
        frozenset({f"StatefulSet/{NAME}-decode"}),
        frozenset({"decode"}),
    ),
    Row(
        "kvCache.chunkTokens",
        128,
        frozenset({f"ConfigMap/{NAME}-lmcache", f"StatefulSet/{NAME}-prefill"}),
        frozenset({"prefill"}),
    ),
    Row(
        "router.env",
        [{"name": "A", "value": "b"}],
        frozenset({f"Deployment/{NAME}-router"}),
        frozenset({"router"}),
    ),
)


def cheap(name: str, **roles: Object) -> Object:
    """engine-sim with one rank a role and a tier."""
    obj = example("quickstart-pcp", name=name)
    spec = obj["spec"]
    spec["prefill"]["parallelism"] = {"prefillContext": 1}
    for role, fields in roles.items():
        spec[role] |= fields
    return obj


def states(kubectl: Kubectl, name: str) -> dict[str, str]:
    """Of each child what changes with every write of it, or of what it asks for."""
    return {
        f"{obj['kind']}/{obj['metadata']['name']}": obj["metadata"]["uid"]
        + str(obj["metadata"]["generation" if obj["kind"] in COUNTING else "resourceVersion"])
        for obj in kubectl.list(KINDS, f"{OF}{name}")
    }


def staying(kubectl: Kubectl) -> dict[str, tuple[str, int]]:
    """The lives of the pods that were not told to end: a router that was replaced takes its time.

    The engines and instances of an edit are there or not: the operator waits for each of them.
    """
    found = kubectl.list("pods", f"{OF}{NAME}")
    ending = {pod["metadata"]["name"] for pod in found if pods.is_ending(pod)}
    lives = pods.lives(kubectl, f"{OF}{NAME}")
    return {name: life for name, life in lives.items() if name not in ending}


def roles_of(kubectl: Kubectl, changed: set[str]) -> set[str]:
    """The roles of the pods that have these names now."""
    found = kubectl.list("pods", f"{OF}{NAME}")
    return {
        pod["metadata"]["labels"]["kvserving.io/role"]
        for pod in found
        if pod["metadata"]["name"] in changed
    }


@pytest.fixture(scope="module")
def edited(testbed: Testbed) -> Iterator[Serving]:
    kubectl = testbed.namespace("kvs-edits")
    serving = serve(kubectl, cheap(NAME, decode={"replicas": 2}))
    serving.wait_settled()
    yield serving
    kubectl.delete("kvserving", NAME)


@pytest.fixture(scope="module")
def neighbour(edited: Serving) -> Iterator[Serving]:
    """An object of the same shape beside it, with a tier and no engines."""
    none = {"replicas": 0}
    serving = serve(edited.kubectl, cheap(NEIGHBOUR, prefill=none, decode=none, router=none))
    serving.wait_settled()
    yield serving
    edited.kubectl.delete("kvserving", NEIGHBOUR)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.field)
def test_an_edit_changes_its_children_and_replaces_their_pods_one_at_a_time(
    row: Row, edited: Serving, neighbour: Serving
) -> None:
    kubectl = edited.kubectl
    before, others = states(kubectl, NAME), states(kubectl, NEIGHBOUR)
    lives = staying(kubectl)
    others_lives = pods.lives(kubectl, f"{OF}{NEIGHBOUR}")
    with PodWatch(kubectl, f"{OF}{NAME},kvserving.io/role=decode") as decodes:
        kubectl.patch("kvserving", NAME, row.patch())
        edited.wait_settled()
    after, now = states(kubectl, NAME), staying(kubectl)
    changed = {child for child in before.keys() | after.keys()
               if before.get(child) != after.get(child)}  # fmt: skip
    assert changed - {ACCEPTED} == row.children
    replaced = {name for name in now if now[name] != lives.get(name)}
    assert roles_of(kubectl, replaced) == row.roles
    for role in row.roles:
        assert not {n for n in lives.keys() & now.keys() if role in n} - replaced, "all of the role"
    assert decodes.fewest_ready() == (1 if "decode" in row.roles else 2)
    assert states(kubectl, NEIGHBOUR) == others
    assert pods.lives(kubectl, f"{OF}{NEIGHBOUR}") == others_lives


def wait_shown(serving: Serving, *row: str) -> None:
    """Wait for the row of `kubectl get kvs`: name, phase, prefill, decode, tier.

    That the tier is ready is told by a look of its own, which being settled does not wait for.
    """

    def shown() -> None:
        out = serving.kubectl.run("get", "kvs", serving.name, "--no-headers")
        assert tuple(out.split()[:5]) == row

    eventually("the row of `kubectl get kvs`", shown, timeout=TOLD_TIMEOUT)


def test_a_real_hpa_scales_prefill_and_kubectl_scales_it_back(edited: Serving) -> None:
    """The HPA acts on its bounds alone: this cluster has no metrics for it to follow."""
    kubectl = edited.kubectl
    edited.wait_whole()
    first = staying(kubectl)
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "kvserving.io/v1alpha1",
                "kind": "KVServing",
                "name": NAME,
            },
            "minReplicas": 2,
            "maxReplicas": 3,
        },
    }
    kubectl.apply(autoscaler)
    wait_for("the HPA", lambda: edited.get()["spec"]["prefill"]["replicas"] == 2, timeout=180)
    kubectl.delete("hpa", NAME)
    edited.wait_settled()
    wait_shown(edited, NAME, "Ready", "2/2", "2/2", "1/1")
    both = staying(kubectl)
    assert both.keys() - first.keys() == {f"{NAME}-prefill-1"}

    kubectl.run("scale", "kvs", NAME, "--replicas=1")
    edited.wait_settled()
    wait_shown(edited, NAME, "Ready", "1/1", "2/2", "1/1")

    def back() -> None:
        assert pods.lives(kubectl, f"{OF}{NAME}") == first

    eventually("the highest ordinal is gone", back, timeout=300)
