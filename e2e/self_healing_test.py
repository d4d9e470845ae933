"""Promise: children come back, an operator that dies converges, a deleted object leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import Serving, example, serve
from stack.agent import Agent
from stack.client import Client, prompt
from stack.install import SYSTEM_NAMESPACE, Testbed
from stack.kubectl import Kubectl, Object, wait_for

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
        timeout=60,
    )
    if replicas:
        system.run("rollout", "status", "deployment", name, "--timeout=60s")


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
        timeout=30,
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
        timeout=60,
    )
    healing.wait_ready()


def test_a_killed_engine_is_started_again_in_its_pod(healing: Serving) -> None:
    kubectl, name = healing.kubectl, "healing-decode-0"
    agent = Agent(kubectl, healing.name, name)
    was, old = agent.facts()["engine"]["startId"], kubectl.get("pod", name)
    assert was
    assert old
    agent.signal_engine("SIGKILL")
    wait_for(
        "the engine's second life",
        lambda: agent.facts()["engine"]["startId"] not in {None, was},
        timeout=120,
    )
    healing.wait_settled()
    new = kubectl.get("pod", name)
    assert new
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    restarts = {
        status["name"]: status["restartCount"]
        for kind in ("containerStatuses", "initContainerStatuses")
        for status in new["status"].get(kind, [])
    }
    assert restarts["engine"] == 1
    assert restarts["agent"] == 0


def test_operator_killed_during_create_converges(testbed: Testbed) -> None:
    kubectl = testbed.namespace("kvs-killed")
    serving = serve(kubectl, minimal("killed"))
    pods = operator_pods(testbed)
    assert pods, "no operator to kill"
    for pod in pods:
        system = testbed.kubectl.within(SYSTEM_NAMESPACE)
        system.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    serving.wait_ready()
    kubectl.delete("kvserving", "killed")
    wait_for("nothing of it is left", lambda: not children(kubectl, "killed"), timeout=120)


def test_delete_leaves_nothing_also_without_the_operator(testbed: Testbed) -> None:
    kubectl = testbed.namespace("kvs-deleted")
    serving = serve(kubectl, minimal("deleted"))
    serving.wait_ready()
    assert children(kubectl, "deleted")
    scale_operator(testbed, 0)
    try:
        kubectl.delete("kvserving", "deleted")
        wait_for("nothing of it is left", lambda: not children(kubectl, "deleted"), timeout=120)
    finally:
        scale_operator(testbed, 1)


def test_refused_spec_touches_nothing(healing: Serving, client: Client) -> None:
    before = {
        f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"]
        for o in healing.kubectl.list(
            "statefulsets,deployments,services", "kvserving.io/kvserving=healing"
        )
    }
    pod = healing.kubectl.get("pod", "healing-decode-0")
    assert pod is not None
    healing.kubectl.patch(
        "kvserving", "healing", {"spec": {"engine": {"extraArgs": ["--port", "1234"]}}}
    )
    try:
        refused = wait_for(
            "SpecValid=False",
            lambda: next(
                (
                    c
                    for c in healing.get()["status"]["conditions"]
                    if c["type"] == "SpecValid" and c["status"] == "False"
                ),
                None,
            ),
            timeout=30,
        )
        assert "--port" in refused["message"]
        after = {
            f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"]
            for o in healing.kubectl.list(
                "statefulsets,deployments,services", "kvserving.io/kvserving=healing"
            )
        }
        assert after == before
        assert (
            healing.kubectl.get("pod", "healing-decode-0")["metadata"]["uid"]
            == pod["metadata"]["uid"]
        )  # type: ignore[index]
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
