"""Every golden case against the real API server: it knows and accepts each object as rendered."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.controlplane import ControlPlane
from kvserving_operator.api import meta
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.kube.diff import differences
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.plan import Manifest
from kvserving_operator.render import render
from tests.unit.render import golden
from tests.unit.stack import AUTH, owner

from .apiserver import APPLY, ROOT, Server
from .optional_apis import optional_apis

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    """The API server, with the APIs of other projects that children may use."""
    found = Server(control_plane.kubeconfig)
    with optional_apis(found):
        yield found


def children(case: str, namespace: str) -> Iterator[Manifest]:
    kvserving = golden.load(case)
    moved = kvserving.metadata.model_copy(update={"namespace": namespace})
    placed: KVServing = kvserving.model_copy(update={"metadata": moved})
    yield from render(golden.planned(placed), AUTH, owner(placed.metadata.name))


def orphans(case: str, namespace: str) -> Iterator[Manifest]:
    """The children without their owner, which does not exist here: else they are collected."""
    for manifest in children(case, namespace):
        metadata = {k: v for k, v in manifest["metadata"].items() if k != "ownerReferences"}
        yield {**manifest, "metadata": metadata}


@pytest.mark.parametrize("case", golden.CASES)
def test_the_server_accepts_every_object_and_its_defaults_are_no_difference(
    server: Server, namespace: str, case: str
):
    for manifest in children(case, namespace):
        resource = resource_of(manifest)
        answer = server.send(
            "PATCH",
            resource.path(namespace, manifest["metadata"]["name"]),
            manifest,
            content_type=APPLY,
            fieldManager=meta.FIELD_MANAGER,
            fieldValidation="Strict",
            dryRun="All",
        )
        label = f"{manifest['kind']} {manifest['metadata']['name']}"
        assert answer.ok, f"{label}: {answer.message}"
        assert not list(differences(manifest, answer.body)), label


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_server_admits_every_example(
    server: Server, installed: ControlPlane, namespace: str, path: Path
):
    del installed  # our CRD
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "KVServing":
            document["metadata"].pop("namespace", None)
            answer = server.create(namespace, document)
            assert answer.ok, answer.message


def test_applying_again_changes_nothing(server: Server, namespace: str):
    for manifest in orphans("pod-templates", namespace):
        if manifest["kind"] in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
            continue  # their controllers write to them in between
        path = resource_of(manifest).path(namespace, manifest["metadata"]["name"])
        versions = []
        for _ in range(2):
            answer = server.send(
                "PATCH", path, manifest, content_type=APPLY, fieldManager=meta.FIELD_MANAGER
            )
            assert answer.ok, answer.message
            versions.append(answer.body["metadata"]["resourceVersion"])
        assert versions[0] == versions[1], path


def test_pods_are_admitted_where_pod_security_is_restricted(server: Server, namespace: str):
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    merge = "application/merge-patch+json"
    where = f"/api/v1/namespaces/{namespace}"
    assert server.send("PATCH", where, {"metadata": {"labels": label}}, content_type=merge).ok
    # The controller that makes it may be slower than this test; then ours stays.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    assert server.send("POST", f"{where}/serviceaccounts", account).status in (201, 409)
    pods = []
    for manifest in orphans("quickstart-cpu", namespace):
        if manifest["kind"] == "ServiceAccount":
            assert server.send("POST", f"{where}/serviceaccounts", manifest).ok
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            name, template = manifest["metadata"]["name"], manifest["spec"]["template"]
            head = {**template["metadata"], "name": name}
            pods.append(
                {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": template["spec"]}
            )
    assert len(pods) == 4
    for pod in pods:
        answer = server.send("POST", f"{where}/pods", pod, dryRun="All")
        assert answer.ok, answer.message
        pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
        assert not server.send("POST", f"{where}/pods", pod, dryRun="All").ok, "not enforced"
