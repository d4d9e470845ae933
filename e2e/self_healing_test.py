"""Promise: children come back, an operator that dies converges, a deleted object leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import Serving, example, serve
from stack import pods
from stack.agent import Agent
from stack.client import Client, prompt
from stack.install import SYSTEM_NAMESPACE, Testbed
from stack.kubectl import Kubectl, Object, eventually, wait_for

OPERATOR = "app.kubernetes.io/name=kvserving-operator"
KINDS = (
    "statefulsets,deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,"
    "networkpolicies,poddisruptionbudgets,pods"
)


def minimal(name: str) -> Object:
    """A cheap object: engine-sim with one rank, no prefill section, no tier."""
    obj = example("quickstart-pcp", name=name)
    spec = obj["spec"]
    del spec["prefill"]
    spec["kvCache"].pop("remote", None)
    return obj


def children(kubectl: Kubectl, name: str) -> set[str]:
    selector = f"kvserving.io/kvserving={name}"
    return {f"{o['kind']}/{o['metadata']['name']}" for o in kubectl.list(KINDS, selector)}


def wait_gone(kubectl: Kubectl, name: str) -> None:
    """Wait until an object that was deleted has left nothing."""

    def gone() -> None:
        assert children(kubectl, name) == set()

    eventually("nothing of it is left", gone, timeout=300)


def operator_pods(testbed: Testbed) -> list[Object]:
    return testbed.kubectl.within(SYSTEM_NAMESPACE).list("pods", OPERATOR)


def scale_operator(testbed: Testbed, replicas: int) -> None:
    system = testbed.kubectl.within(SYSTEM_NAMESPACE)
    name = system.list("deployments", OPERATOR)[0]["metadata"]["name"]
    system.run("scale", "deployment", name, f"--replicas={replicas}")
    wait_for(
        f"{replicas} operator pods",
        lambda: (
            len([p for p in operator_pods(testbed) if "deletionTimestamp" not in p["metadata"]])
            == replicas
            and len(operator_pods(testbed)) == replicas
        ),
        timeout=180,
    )
    if replicas:
        system.run("rollout", "status", "deployment", name, "--timeout=180s", timeout=200)


@pytest.fixture(scope="module")
def healing(testbed: Testbed) -> Iterator[Serving]:
    kubectl = testbed.namespace("kvs-healing")
    serving = serve(kubectl, minimal("healing"))
    serving.wait_ready()
    yield serving
    kubectl.delete("kvserving", "healing")


def test_edited_service_is_repaired(healing: Serving) -> None:
    healing.kubectl.patch(
        "service", "healing", {"spec": {"selector": {"kvserving.io/role": "nobody"}}}
    )
    wait_for(
        "the Service's selector is back",
        lambda: (
            (healing.kubectl.get("service", "healing") or {})["spec"]["selector"][
                "kvserving.io/role"
            ]
            == "router"
        ),
        timeout=120,
    )


@pytest.mark.parametrize(
    "kind", ["service", "networkpolicy", "role", "statefulset", "deployment", "serviceaccount"]
)
def test_deleted_child_comes_back(healing: Serving, kind: str) -> None:
    found = healing.kubectl.list(kind, "kvserving.io/kvserving=healing")[0]["metadata"]
    healing.kubectl.delete(kind, found["name"])
    wait_for(
        f"{kind} {found['name']} is back",
        lambda: (
            (now := healing.kubectl.get(kind, found["name"]))
            and now["metadata"]["uid"] != found["uid"]
        ),
        timeout=180,
    )
    healing.wait_whole()


def test_a_killed_engine_is_started_again_in_its_pod(healing: Serving) -> None:
    kubectl, name = healing.kubectl, "healing-decode-0"
    healing.wait_whole()
    agent = Agent(kubectl, healing.name, name)
    was = wait_for("the engine is known", lambda: agent.facts()["engine"]["startId"], timeout=60)
    old = kubectl.get("pod", name)
    assert old
    agent.signal_engine("SIGKILL")
    wait_for(
        "the engine's second life",
        lambda: agent.facts()["engine"]["startId"] not in {None, was},
        timeout=240,
    )

    def told() -> None:
        """The kubelet tells it a moment after the agent."""
        new = kubectl.get("pod", name)
        assert new is not None
        assert new["metadata"]["uid"] == old["metadata"]["uid"]
        before, after = restarts_of(old), restarts_of(new)
        assert after == {**before, "engine": before["engine"] + 1}

    eventually("the engine was restarted once, and nothing else", told, timeout=60)
    healing.wait_whole()
    told()


def restarts_of(pod: Object) -> dict[str, int]:
    """How often each container was restarted."""
    return {
        status["name"]: status["restartCount"]
        for kind in ("containerStatuses", "initContainerStatuses")
        for status in pod["status"].get(kind, [])
    }


def test_operator_killed_during_create_converges(testbed: Testbed) -> None:
    kubectl = testbed.namespace("kvs-killed")
    serving = serve(kubectl, minimal("killed"))
    operators = operator_pods(testbed)
    assert operators, "no operator to kill"
    for pod in operators:
        system = testbed.kubectl.within(SYSTEM_NAMESPACE)
        name = pod["metadata"]["name"]
        system.run("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
    serving.wait_ready()
    kubectl.delete("kvserving", "killed")
    wait_gone(kubectl, "killed")


def test_delete_leaves_nothing_also_without_the_operator(testbed: Testbed) -> None:
    kubectl = testbed.namespace("kvs-deleted")
    serving = serve(kubectl, minimal("deleted"))
    serving.wait_ready()
    assert children(kubectl, "deleted")
    scale_operator(testbed, 0)
    try:
        kubectl.delete("kvserving", "deleted")
        wait_gone(kubectl, "deleted")
    finally:
        scale_operator(testbed, 1)


def wanted(serving: Serving) -> dict[str, Object]:
    """What its children ask for and who owns which field of it, by kind and name: no status."""
    selector = f"kvserving.io/kvserving={serving.name}"
    found = serving.kubectl.list("statefulsets,deployments,services", selector)
    for obj in found:
        obj.pop("status", None)
        obj["metadata"].pop("resourceVersion", None)
        owned = obj["metadata"].pop("managedFields", [])
        obj["owned"] = [entry for entry in owned if entry.get("subresource") != "status"]
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in found}


def test_refused_spec_touches_nothing(healing: Serving, client: Client) -> None:
    healing.wait_whole()
    before, lives = wanted(healing), pods.lives(healing.kubectl, "kvserving.io/kvserving=healing")
    healing.kubectl.patch(
        "kvserving", "healing", {"spec": {"engine": {"extraArgs": ["--port", "1234"]}}}
    )
    try:
        healing.wait_says("SpecValid", "False", mentions=["--port"])
        assert wanted(healing) == before
        assert pods.lives(healing.kubectl, "kvserving.io/kvserving=healing") == lives
        url = f"http://healing.{healing.kubectl.namespace}.svc.cluster.local"
        assert client.complete(url, prompt(1, 64), model=healing.model, tokens=4).status == 200
    finally:
        healing.kubectl.patch(
            "kvserving",
            "healing",
            {
                "spec": {
                    "engine": {
                        "extraArgs": example("quickstart-pcp")["spec"]["engine"].get("extraArgs")
                    }
                }
            },
        )
    healing.wait_ready()
