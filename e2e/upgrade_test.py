"""Promise: an upgrade ends no process that serves and fails no request; neither does a removal.

An older release, which serves one namespace, is upgraded, removed and installed again for the
whole cluster, under traffic from the first to the last. Older is the chart's CRD, which lacks a
field and columns, and the name of the operator's image, which is that of the agents, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import audit
from conftest import READY_TIMEOUT, Serving, example, serve
from self_healing_test import children
from stack import pods
from stack.client import Client
from stack.install import CHART, SYSTEM_NAMESPACE, Testbed, image, name_image
from stack.kubectl import Kubectl, Object, condition, wait_for
from stack.traffic import Traffic
from stack.watch import PodWatch
from tier_changes_test import PAUSE
from writes_test import OPERATOR_USER, by_operator

NAME = "upgraded"
NAMESPACE = "kvs-upgraded"
ELSEWHERE = "kvs-elsewhere"
OLDER_TAG = "older"
NOTED = [f"configmaps/{NAME}-accepted"]
"""The one write of an upgrade: the new CRD has a new default, so the accepted spec is another."""
CRD = "kvservings.kvserving.io"
MINE = f"kvserving.io/kvserving={NAME}"
ENGINES = f"{MINE},kvserving.io/role in (prefill,decode)"
DECODES = f"{MINE},kvserving.io/role=decode"


def older_chart(folder: Path) -> Path:
    """The chart as an earlier version might have been."""
    copy = folder / "older"
    shutil.copytree(CHART, copy)
    path = copy / "files" / "crds" / "kvserving.io_kvservings.yaml"
    crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    (version,) = crd["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["suspend"]
    version["additionalPrinterColumns"] = version["additionalPrinterColumns"][:1]
    path.write_text(yaml.dump(crd, Dumper=yaml.CSafeDumper))
    return copy


def stack_of_all_roles() -> Object:
    """engine-sim with one rank a role, two decodes, a tier and a router."""
    obj = example("quickstart-pcp", name=NAME)
    spec = obj["spec"]
    spec["prefill"]["parallelism"] = {"prefillContext": 1}
    spec["decode"]["replicas"] = 2
    return obj


def knows_suspend(kubectl: Kubectl) -> bool:
    (version,) = (kubectl.get("crd", CRD) or {})["spec"]["versions"]
    return "suspend" in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def agents(kubectl: Kubectl) -> set[str]:
    """The agent images of the engine pods."""
    found = kubectl.list("pods", ENGINES)
    return {
        container["image"]
        for pod in found
        for container in pod["spec"]["initContainers"]
        if container["name"] == "agent"
    }


def written(mark: int) -> list[str]:
    """The children that the operator wrote since a mark, once for each write."""
    found = audit.writes_since(mark, where=by_operator)
    return [
        f"{w.resource}/{w.name}"
        for w in found
        if w.namespace == NAMESPACE and w.resource not in {"kvservings", "events"}
    ]


def wait_held(serving: Serving, agent: str) -> Object:
    """Wait until an operator says that it would render the engines with other agents."""
    return wait_for(
        f"TemplatesHeld, and no engine with {agent}",
        lambda: (
            found
            if (found := condition(serving.get(), "Progressing"))
            and found["reason"] == "TemplatesHeld"
            else None
        ),
        timeout=180,
    )


@pytest.fixture(scope="module")
def system(testbed: Testbed) -> Kubectl:
    return testbed.kubectl.within(SYSTEM_NAMESPACE)


@pytest.fixture(scope="module")
def older(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The older release, which watches one namespace, and an object that it made Ready."""
    kubectl = testbed.namespace(NAMESPACE)
    name_image("operator", OLDER_TAG)
    chart = older_chart(tmp_path_factory.mktemp("chart"))
    try:
        testbed.install_chart(chart, **{"image.tag": OLDER_TAG, "namespaces": f"{{{NAMESPACE}}}"})
        assert not knows_suspend(kubectl)
        serving = serve(kubectl, stack_of_all_roles())
        serving.wait_settled()
        serving.wait_says("RemoteTierReady", "True")
        yield serving
    finally:
        testbed.install_chart()  # the release that the other tests use
        kubectl.delete("kvserving", NAME)


@pytest.fixture
def bystander(older: Serving, testbed: Testbed) -> Iterator[Kubectl]:
    """An object without pods in a namespace that the older release does not watch."""
    del older
    kubectl = testbed.namespace(ELSEWHERE)
    obj = example("quickstart-pcp", name="bystander")
    del obj["spec"]["prefill"], obj["spec"]["kvCache"]
    obj["spec"]["decode"]["replicas"] = 0
    obj["spec"]["router"] = {"type": "None"}
    kubectl.apply(obj)
    yield kubectl
    kubectl.delete("kvserving", "bystander")


def test_upgrade_removal_and_return_end_no_process_and_fail_no_request(
    older: Serving, bystander: Kubectl, testbed: Testbed, system: Kubectl
) -> None:
    kubectl = older.kubectl
    client = Client.create(kubectl, image("operator"))
    lives, mark = pods.lives(kubectl, MINE), audit.mark()
    assert len(lives) == 5, lives
    with Traffic(client, older.url, older.model) as traffic:
        # The upgrade, with the flags of the installation and the new tag, as the chart's page says.
        testbed.install_chart(namespaces=f"{{{NAMESPACE}}}")
        assert knows_suspend(kubectl)
        held = wait_held(older, image("operator"))
        assert f"StatefulSet {NAME}-decode, StatefulSet {NAME}-prefill" in held["message"]
        assert agents(kubectl) == {image("operator", OLDER_TAG)}
        assert written(mark) == NOTED
        assert pods.lives(kubectl, MINE) == lives
        assert not children(bystander, "bystander")
        assert "status" not in (bystander.get("kvserving", "bystander") or {})
        assert may(system, "list", "kvservings", NAMESPACE)
        assert not may(system, "list", "kvservings", ELSEWHERE)

        before = children(kubectl, NAME)
        removed(testbed, system)
        assert children(kubectl, NAME) == before
        assert older.get()["spec"]["decode"]["replicas"] == 2

        testbed.install_chart()
        wait_for("the object elsewhere is served", lambda: children(bystander, "bystander"),
                 timeout=180)  # fmt: skip
        wait_held(older, image("operator"))
        older.wait_ready()
    assert written(mark) == NOTED, "taken over as it is"
    assert pods.lives(kubectl, MINE) == lives
    assert traffic.longest_pause() < PAUSE
    assert traffic.failed() == []


def may(system: Kubectl, verb: str, resource: str, namespace: str) -> bool:
    """Whether the operator's account may do so."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": OPERATOR_USER,
            "resourceAttributes": {
                "group": "kvserving.io",
                "resource": resource,
                "verb": verb,
                "namespace": namespace,
            },
        },
    }
    out = system.run("create", "-f", "-", "-o", "yaml", stdin=yaml.safe_dump(review))
    return bool(yaml.safe_load(out)["status"]["allowed"])


def removed(testbed: Testbed, system: Kubectl) -> None:
    """`helm uninstall` takes exactly what the release made, but what it says that it keeps."""
    manifest = testbed.run_helm("get", "manifest", "kvserving", "-n", SYSTEM_NAMESPACE)
    objects = [obj for obj in yaml.safe_load_all(manifest) if obj]
    assert {obj["kind"] for obj in objects} >= {"Deployment", "ServiceAccount", "Role", "Service"}
    said = testbed.uninstall_chart()
    assert CRD in said
    for obj in objects:
        kept = (obj["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
        where = system.within(obj["metadata"].get("namespace") or SYSTEM_NAMESPACE)
        there = where.get(obj["kind"], obj["metadata"]["name"]) is not None
        assert there is kept, f"{obj['kind']} {obj['metadata']['name']}"
        assert kept is (obj["kind"] == "CustomResourceDefinition")
    wait_for(
        "no operator runs",
        lambda: not system.list("pods", "app.kubernetes.io/name=kvserving-operator"),
        timeout=180,
    )


def test_adopting_replaces_the_engines_one_at_a_time_and_nothing_else(older: Serving) -> None:
    kubectl = older.kubectl
    before, engines = pods.lives(kubectl, MINE), pods.lives(kubectl, ENGINES)
    with PodWatch(kubectl, DECODES) as watch:
        kubectl.run("annotate", "kvs", NAME, "kvserving.io/adopt=now", "--overwrite")
        wait_for(
            "all engines replaced and Ready",
            lambda: (
                agents(kubectl) == {image("operator")}
                and (found := condition(older.get(), "Progressing"))
                and found["reason"] == "Settled"
            ),
            timeout=READY_TIMEOUT,
        )
    after = pods.lives(kubectl, MINE)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == engines.keys()
    assert watch.fewest_ready() == 1, "one of two decodes served all the time"
