"""Random specs that are served, from manifest to nothing left: every step of a life succeeds.

Their pods are the stand-in kubelet's. Twelve specs; KVSERVING_TEST_SPECS says how many otherwise
(200 in `make soak`), always the same ones for the same number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.controlplane import ControlPlane
from kvserving_operator.api import meta
from kvserving_operator.cli.check import check
from kvserving_operator.kube import paths
from kvserving_operator.kube.diff import differences
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.plan import Manifest
from kvserving_operator.render import render
from tests.unit.api import valid_specs
from tests.unit.api.builders import make
from tests.unit.stack import AUTH, DEFAULTS, owner

from .apiserver import APPLY, Object, Server
from .harness import Cluster, Served, wait_for
from .optional_apis import optional_apis

pytestmark = pytest.mark.takes(35)

COUNT = int(os.environ.get("KVSERVING_TEST_SPECS", "12"))
TOGETHER = 12
"""So many live at the same time."""


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    """The API server, with the APIs of other projects that children may use."""
    found = Server(control_plane.kubeconfig)
    with optional_apis(found):
        yield found


def objects_of(specs: list[Object], namespace: str, first: int) -> dict[str, Object]:
    made = {}
    for number, spec in enumerate(specs, start=first):
        obj = make(name=f"random-{number}") | {"spec": spec}
        obj["metadata"]["namespace"] = namespace
        made[obj["metadata"]["name"]] = obj
    return made


def rendered(obj: Object) -> tuple[Manifest, ...]:
    checked = check(obj, DEFAULTS)
    assert checked.plan is not None, checked.findings
    return render(checked.plan, AUTH, owner(obj["metadata"]["name"]))


def accepted_by_a_dry_run(server: Server, manifests: tuple[Manifest, ...]) -> None:
    for manifest in manifests:
        metadata = manifest["metadata"]
        answer = server.send(
            "PATCH",
            resource_of(manifest).path(metadata["namespace"], metadata["name"]),
            manifest,
            content_type=APPLY,
            fieldManager=meta.FIELD_MANAGER,
            fieldValidation="Strict",
            dryRun="All",
        )
        label = f"{manifest['kind']} {metadata['name']}"
        assert answer.ok, f"{label}: {answer.message}"
        assert not list(differences(manifest, answer.body)), label


def settled(cluster: Cluster, name: str) -> Any:
    """The status when there is no more to do, Ready or not: a role may be asked to be empty."""

    def over() -> Object | None:
        status = cluster.status(name)
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        done = conditions.get("Reconciling", {}).get("status") == "False"
        return status if done else None

    return wait_for(
        over, timeout=120, what=f"{name} settles", more=lambda: str(cluster.must_get(KVS, name))
    )


KVS = paths.KVSERVINGS


def children(cluster: Cluster, name: str) -> set[str]:
    return {
        f"{resource.plural}/{item['metadata']['name']}"
        for resource in paths.ALL_CHILDREN
        for item in cluster.list(resource, name)
    }


def written(served: Served, objects: dict[str, Object]) -> None:
    """Each object has become exactly its children, and says so."""
    cluster = served.cluster
    for name, obj in objects.items():
        status = settled(cluster, name)
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert conditions["SpecValid"] == "True", (status, obj)
        assert conditions["Stalled"] == "False", (status, obj)
        suspended = obj["spec"].get("suspend", False)
        expected = {f"{resource_of(m).plural}/{m['metadata']['name']}" for m in rendered(obj)} | {
            f"configmaps/{name}-accepted"
        }
        assert children(cluster, name) == (set() if suspended else expected), obj


def left_alone(served: Served, names: list[str]) -> None:
    """Another pass over each of them writes nothing."""
    cluster, mark = served.cluster, served.cluster.mark()
    before = served.operator.metric("kvserving_operator_passes_total")
    for name in names:
        cluster.patch(KVS, name, {"metadata": {"annotations": {"example.com/look": "again"}}})
    wait_for(
        lambda: (
            served.operator.metric("kvserving_operator_passes_total") >= before + len(names)
            and served.operator.metric("kvserving_operator_queue_due") == 0
        ),
        what="another pass over each",
    )
    assert [str(write) for write in cluster.writes(mark)] == []


def gone(served: Served, names: list[str]) -> None:
    cluster = served.cluster
    for name in names:
        cluster.delete(KVS, name)
    for name in names:
        wait_for(
            lambda name=name: not children(cluster, name) and not cluster.list(paths.PODS, name),
            timeout=120,
            what=f"garbage collection of {name}",
            more=lambda name=name: str(children(cluster, name)),
        )


def test_a_spec_that_is_accepted_works_in_every_step(server: Server, served: Served) -> None:
    drawn = valid_specs.drawn(COUNT)
    for first in range(0, COUNT, TOGETHER):
        specs = drawn[first : first + TOGETHER]
        objects = objects_of(specs, served.cluster.namespace, first)
        for obj in objects.values():
            accepted_by_a_dry_run(server, rendered(obj))
        for obj in objects.values():
            served.cluster.create(obj)
        written(served, objects)
        left_alone(served, list(objects))
        gone(served, list(objects))
        assert not served.operator.said("stored differently from what was applied")
        assert served.operator.unexpected == []
