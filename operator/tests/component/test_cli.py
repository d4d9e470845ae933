"""`kvserving` against a cluster: render is what the operator made, diff is what it would make."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.kube.diff import differences

from .harness import Cluster, Object, Served, example

pytestmark = pytest.mark.takes(80)

NAME = "shown"
ROUTER_IMAGE = "registry.example/router:7"


class Done(NamedTuple):
    status: int
    out: str
    err: str


class Program:
    """The program as a user of the cluster runs it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder

    def file(self, obj: Object) -> str:
        path = self._folder / f"{obj['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump(obj))
        return str(path)

    def __call__(self, command: str, obj: Object, *arguments: str) -> Done:
        where = ["--kubeconfig", str(self._cluster.plane.kubeconfig)]
        where += ["-n", self._cluster.namespace, "--operator-namespace", self._cluster.namespace]
        program = [sys.executable, "-m", "kvserving_operator.cli.main", command]
        done = subprocess.run(
            [*program, "-f", self.file(obj), *where, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        )
        assert "Traceback" not in done.stderr
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def operator(served: Served) -> Iterator[Served]:
    """The operator's Deployment as the chart makes it; the process itself is the fixture's."""
    variables = {
        "KVSERVING_ROUTER_IMAGE": ROUTER_IMAGE,
        "KVSERVING_OPERATOR_LABELS": "app.kubernetes.io/name=kvserving-operator",
    }
    labels = {meta.LABEL_NAME: "kvserving-operator"}
    container = {
        "name": "operator",
        "image": "x",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    served.cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "kvserving", "labels": labels},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )
    yield served
    served.cluster.delete(paths.DEPLOYMENTS, "kvserving")


@pytest.fixture
def program(operator: Served, tmp_path: Path) -> Program:
    return Program(operator.cluster, tmp_path)


@pytest.fixture(scope="module")
def live(operator: Served) -> Object:
    """An object that the operator has settled; its router image is given, as the chart would."""
    obj = example(NAME, router__image=ROUTER_IMAGE)
    operator.cluster.create(obj)
    operator.cluster.settled(NAME)
    return obj


def contents(cluster: Cluster, name: str) -> dict[str, Object]:
    own = cluster.must_get(paths.KVSERVINGS, name)
    return cluster.contents(name) | {"": {"generation": own["metadata"]["generation"]}}


def test_rendered_is_what_the_operator_applied(
    operator: Served, program: Program, live: Object
) -> None:
    """Field by field, the hashes and the owner included; passwords are the only thing left out."""
    done = program("render", live, "--from-cluster", "-o", "json")
    assert done.status == 0, done.err
    children = made(operator.cluster, NAME)
    rendered: list[Object] = json.loads(done.out)["items"]
    keys = [f"{paths.resource_of(m).plural}/{m['metadata']['name']}" for m in rendered]
    assert sorted(keys) == sorted(children)
    for key, manifest in zip(keys, rendered, strict=True):
        assert list(differences(manifest, children[key])) == [], key
        hashes = [o["metadata"]["annotations"][meta.ANNOTATION_RENDER_HASH] for o in
                  (manifest, children[key])]  # fmt: skip
        assert hashes[0] == hashes[1], key
    assert secret_values(operator.cluster).isdisjoint(done.out.split('"'))


def made(cluster: Cluster, name: str) -> dict[str, Object]:
    """The children, without the operator's record of them, which is its own affair."""
    found = cluster.children(name).items()
    return {k: o for k, o in found if o["metadata"]["labels"][meta.LABEL_COMPONENT] != "accepted"}


def secret_values(cluster: Cluster) -> set[str]:
    data: dict[str, str] = cluster.must_get(paths.SECRETS, f"{NAME}-auth")["data"]
    return set(data.values())


def test_without_a_cluster_only_uid_passwords_and_hashes_differ(
    operator: Served, program: Program, live: Object
) -> None:
    done = program("render", live, "-o", "json")
    assert done.status == 0, done.err
    children = operator.cluster.children(NAME)
    unknown = (meta.ANNOTATION_RENDER_HASH, meta.ANNOTATION_CONFIG_HASH, "ownerReferences")
    for manifest in json.loads(done.out)["items"]:
        key = f"{paths.resource_of(manifest).plural}/{manifest['metadata']['name']}"
        found = list(differences(manifest, children[key]))
        assert [path for path in found if not any(word in path for word in unknown)] == [], key


def test_images_come_from_the_installed_operator(program: Program) -> None:
    obj = example("images")
    assert ROUTER_IMAGE in program("render", obj, "--from-cluster").out
    assert ROUTER_IMAGE not in program("render", obj).out
    other = program("render", obj, "--from-cluster", "--router-image", "mine:1").out
    assert "image: mine:1" in other


def test_no_difference_to_what_runs(operator: Served, program: Program, live: Object) -> None:
    before = contents(operator.cluster, NAME)
    done = program("diff", live)
    assert done == (0, "", ""), done
    assert contents(operator.cluster, NAME) == before


def test_a_change_is_shown_with_all_it_brings_and_writes_nothing(
    operator: Served, program: Program, live: Object
) -> None:
    before = contents(operator.cluster, NAME)
    changed = json.loads(json.dumps(live))
    changed["spec"].setdefault("kvCache", {})["chunkTokens"] = 512
    changed["spec"]["networkPolicy"] = {"mode": "Disabled"}
    done = program("diff", changed)
    assert done.status == 1, done.err
    heads = [line for line in done.out.splitlines() if line.startswith(("--- ", "+++ "))]
    space = operator.cluster.namespace
    for label in (f"KVServing/{space}/{NAME}", f"ConfigMap/{space}/{NAME}-lmcache"):
        assert f"--- live/{label}" in heads
    assert f"--- live/NetworkPolicy/{space}/{NAME}-valkey" in heads, "what would be deleted too"
    assert f"--- live/Service/{space}/{NAME}" not in heads
    assert re.search(r"^\+ +chunkTokens: 512$", done.out, re.MULTILINE)
    assert re.search(r"^- +chunkTokens: (?!512)", done.out, re.MULTILINE)
    assert secret_values(operator.cluster).isdisjoint(done.out.split())
    assert contents(operator.cluster, NAME) == before


def test_a_new_object_is_all_additions(operator: Served, program: Program) -> None:
    done = program("diff", example("newcomer"))
    assert done.status == 1, done.err
    bodies = [line for line in done.out.splitlines() if not line.startswith(("---", "@@"))]
    assert all(line.startswith("+") for line in bodies)
    assert "(not shown" in done.out
    assert operator.cluster.get(paths.KVSERVINGS, "newcomer") is None
    assert operator.cluster.children("newcomer") == {}


def test_replicas_of_an_autoscaler_are_no_difference(operator: Served, program: Program) -> None:
    cluster = operator.cluster
    obj = example("scaled", prefill__replicas=1, router__image=ROUTER_IMAGE)
    cluster.create(obj)
    cluster.settled("scaled")
    path = paths.KVSERVINGS.path(cluster.namespace, "scaled", "scale")
    cluster.plane.api.merge_patch(path, {"spec": {"replicas": 2}})
    cluster.settled("scaled")
    del obj["spec"]["prefill"]["replicas"]
    assert program("diff", obj) == (0, "", "")


def refusals(operator: Served) -> dict[str, tuple[Object, str]]:
    engine: dict[str, Any] = {"engine__extraArgs": ["--port", "1"]}
    return {
        "a fault": (example(NAME, **engine), "spec.engine.extraArgs[0]"),
        "a rejected pod": (
            example("odd", decode__podTemplate={"spec": {"tolerationz": []}}),
            "StatefulSet odd-decode",
        ),
        "a taken name": (example("taken"), "ConfigMap taken-valkey exists"),
    }


@pytest.mark.parametrize("row", ["a fault", "a rejected pod", "a taken name"])
def test_what_cannot_be_applied_is_said(operator: Served, program: Program, row: str) -> None:
    obj, said = refusals(operator)[row]
    if row == "a taken name":
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken-valkey"}}
        operator.cluster.create(theirs)
    done = program("diff", obj)
    assert done.status == 2
    assert said in done.err


def test_a_missing_namespace_is_one_line(program: Program) -> None:
    done = program("diff", example("x") | {"metadata": {"name": "x", "namespace": "nowhere"}})
    assert done.status == 2
    assert "nowhere/x:" in done.err
    assert done.err.count("\n") == 1


def test_an_unreachable_cluster_is_one_line(tmp_path: Path, program: Program) -> None:
    file = tmp_path / "kubeconfig"
    for text in ("{", json.dumps({"current-context": "x"})):
        file.write_text(text)
        done = program("diff", example("x"), "--kubeconfig", str(file))
        assert done.status == 2
        assert done.err.count("\n") == 1, done.err
