"""The resource as users and tools meet it: drift, columns, scale, status, explain."""

import subprocess
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from cluster.controlplane import ControlPlane
from tests.component.apiserver import ROOT, Object, Server, kvserving_in, objects
from tests.unit.api.builders import make

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(control_plane: ControlPlane, server: Server, namespace: str) -> Kubectl:
    def run(*arguments: str, stdin: str = "") -> str:
        program = [str(control_plane.program("kubectl")), "--kubeconfig"]
        command = [*program, str(control_plane.kubeconfig), "-n", namespace, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


STATUS: Object = {
    "observedGeneration": 1,
    "phase": "Ready",
    "tier": {"instances": 1, "ready": 1, "summary": "1/1", "epoch": "5f0c"},
    "prefill": {
        **{"replicas": 2, "ready": 1, "summary": "1/2"},
        "selector": "kvserving.io/role=prefill",
    },
    "decode": {"replicas": 1, "ready": 1, "summary": "1/1"},
    "tuning": {"loading": "Async"},
    "gpus": {"requested": 40},
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AllReady",
            "message": "",
            "lastTransitionTime": "2026-11-30T09:00:00Z",
        }
    ],
}


def write_status(server: Server, namespace: str, obj: Object, status: Object) -> Object:
    identity = {key: obj[key] for key in ("apiVersion", "kind")}
    body = identity | {"metadata": {"name": obj["metadata"]["name"]}, "status": status}
    manager = "kvserving-operator"
    answer = server.apply(namespace, body, manager=manager, subresource="/status")
    assert answer.ok, answer.message
    return answer.body


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_applying_the_same_manifest_again_changes_nothing(
    server: Server, namespace: str, path: Any
) -> None:
    """GitOps: two managers and a status writer in between see no drift."""
    manifest = kvserving_in(path)
    first = server.apply(namespace, deepcopy(manifest), manager="argocd-controller")
    assert first.ok, first.message
    again = server.apply(namespace, deepcopy(manifest), manager="argocd-controller")
    assert again.body == first.body
    with_status = write_status(server, namespace, manifest, STATUS)
    again = server.apply(namespace, deepcopy(manifest), manager="argocd-controller")
    assert again.body == with_status
    other = server.apply(namespace, deepcopy(manifest), manager="flux")
    assert other.ok, other.message
    for part in ("spec", "status"):
        assert other.body[part] == with_status[part]
    assert other.body["metadata"]["generation"] == first.body["metadata"]["generation"] == 1


def test_client_side_apply_again_is_unchanged(kubectl: Kubectl) -> None:
    manifest = (ROOT / "examples" / "quickstart.yaml").read_text()
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest)
    assert kubectl("diff", "-f", "-", stdin=manifest) == ""


def test_a_field_taken_out_of_the_manifest_gets_its_default_back(
    server: Server, namespace: str
) -> None:
    changed = {"kvCache.chunkTokens": 64, "decode.replicas": 3, "router.replicas": 1}
    server.apply(namespace, make(changed), manager="git")
    answer = server.apply(namespace, make(), manager="git")
    spec = answer.body["spec"]
    assert (spec["kvCache"]["chunkTokens"], spec["router"]["replicas"]) == (256, 2)
    assert "replicas" not in spec["decode"]


def test_columns(server: Server, namespace: str, kubectl: Kubectl) -> None:
    server.apply(namespace, make(), manager="git")
    write_status(server, namespace, make(), STATUS)
    head, row = kubectl("get", "kvs").splitlines()
    assert head.split() == [
        *("NAME", "PHASE", "PREFILL", "DECODE", "TIER", "LOADING", "GPUS", "REASON", "AGE")
    ]
    assert row.split()[:-1] == ["x", "Ready", "1/2", "1/1", "1/1", "Async", "40", "AllReady"]


def test_status_and_spec_are_apart(server: Server, namespace: str) -> None:
    server.apply(namespace, make() | {"status": {"phase": "Lies"}}, manager="git")
    assert "status" not in server.get(namespace, "x").body
    body = make({"decode.replicas": 9}) | {"status": {"phase": "Ready"}}
    answer = server.apply(namespace, body, manager="op", subresource="/status")
    assert answer.ok, answer.message
    assert answer.body["status"] == {"phase": "Ready"}
    assert "replicas" not in answer.body["spec"]["decode"]


def test_conditions_are_merged_by_type(server: Server, namespace: str) -> None:
    server.apply(namespace, make(), manager="git")
    write_status(server, namespace, make(), STATUS)
    other = {**STATUS["conditions"][0], "type": "Paid"}
    body = make() | {"status": {"conditions": [other]}}
    answer = server.apply(namespace, body, manager="billing", subresource="/status")
    types = {condition["type"] for condition in answer.body["status"]["conditions"]}
    assert types == {"Ready", "Paid"}


def test_environment_is_merged_by_name(server: Server, namespace: str) -> None:
    for manager, name in (("a", "ONE"), ("b", "TWO")):
        done = server.apply(
            namespace, make({"engine.env": [{"name": name, "value": "x"}]}), manager=manager
        )
        assert done.ok, done.message
    names = [env["name"] for env in server.get(namespace, "x").body["spec"]["engine"]["env"]]
    assert sorted(names) == ["ONE", "TWO"]


def test_scale_works_once_replicas_are_given(server: Server, namespace: str) -> None:
    server.apply(namespace, make({"prefill": {}}), manager="git")
    write_status(server, namespace, make(), STATUS)
    absent = server.get(namespace, "x", "/scale")
    assert absent.status >= 400
    assert ".spec.prefill.replicas" in absent.message
    server.apply(namespace, make({"prefill.replicas": 2}), manager="somebody")
    scale = server.get(namespace, "x", "/scale").body
    assert scale["spec"]["replicas"] == 2
    assert scale["status"] == {"replicas": 2, "selector": "kvserving.io/role=prefill"}
    path = f"{objects(namespace)}/x/scale"
    patch = {"spec": {"replicas": 5}}
    done = server.send("PATCH", path, patch, content_type="application/merge-patch+json")
    assert done.ok, done.message
    # Git, which leaves replicas out, does not undo it.
    kept = server.apply(namespace, make({"prefill": {}}), manager="git")
    assert kept.body["spec"]["prefill"]["replicas"] == 5


def test_explain_knows_every_field(kubectl: Kubectl) -> None:
    tree = kubectl("explain", "kvserving.spec", "--recursive")
    for word in ("prefillContext", "memoryPerInstance", "hugging", "-required-", "enum: Off"):
        assert word in tree
    text = kubectl("explain", "kvs.spec.kvCache.remote.memoryPerInstance")
    assert "three quarters hold KV" in text


def test_the_crd_can_be_applied_by_plain_kubectl(kubectl: Kubectl) -> None:
    """Client-side apply copies it into an annotation of at most 262,144 bytes."""
    crd = (ROOT / "crds" / "kvserving.io_kvservings.yaml").read_text()
    renamed = yaml.safe_load(crd.replace("kvserving.io", "copy.kvserving.io"))
    text = yaml.safe_dump(renamed)
    assert "created" in kubectl("apply", "-f", "-", stdin=text)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=text)
    kubectl("delete", "-f", "-", stdin=text)
