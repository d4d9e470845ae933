"""A HorizontalPodAutoscaler owns the replicas of prefill: nobody fights over them.

The autoscaler is Kubernetes' own, in the controller manager. What it measures comes from the
metrics API that metrics-server would serve; here that is a CRD, and the test writes the figures.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource

from .apiserver import CRDS, Object, Server
from .harness import Cluster, Served, example, wait_for
from .optional_apis import install, remove

NAME = "scaled"
PREFILL = f"{NAME}-prefill"
AUTOSCALERS = Resource(
    group="autoscaling", version="v2", kind="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
)  # fmt: skip
POD_METRICS = Resource(group="metrics.k8s.io", version="v1beta1", kind="PodMetrics", plural="pods")
HPA: Object = {
    "apiVersion": AUTOSCALERS.api_version,
    "kind": AUTOSCALERS.kind,
    "metadata": {"name": NAME},
    "spec": {
        "scaleTargetRef": {
            "apiVersion": "kvserving.io/v1alpha1",
            "kind": "KVServing",
            "name": NAME,
        },
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "memory",
                    "target": {"type": "AverageValue", "averageValue": "100Mi"},
                },
            }
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    },
}
METRICS_API: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{POD_METRICS.plural}.{POD_METRICS.group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, in place of metrics-server"},
    },
    "spec": {
        "group": POD_METRICS.group,
        "scope": "Namespaced",
        "names": {"plural": "pods", "singular": "pod", "kind": POD_METRICS.kind},
        "versions": [
            {
                "name": POD_METRICS.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def metrics_api(served: Served) -> Iterator[None]:
    server = Server(served.cluster.plane.kubeconfig)
    assert server.send("GET", CRDS).ok
    install(server, METRICS_API)
    yield
    remove(server, METRICS_API)


def report(cluster: Cluster, memory: str) -> None:
    """What metrics-server would say of every pod of the object."""
    for pod in cluster.list(paths.PODS, NAME):
        metadata = pod["metadata"]
        measured = {
            "apiVersion": POD_METRICS.api_version,
            "kind": POD_METRICS.kind,
            "metadata": {"name": metadata["name"], "labels": metadata["labels"]},
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "window": "15s",
            "containers": [
                {"name": container["name"], "usage": {"cpu": "1", "memory": memory}}
                for container in pod["spec"]["containers"]
            ],
        }
        if cluster.get(POD_METRICS, metadata["name"]):
            cluster.patch(POD_METRICS, metadata["name"], measured)
        else:
            cluster.plane.api.create(POD_METRICS.path(cluster.namespace), measured)


def replicas(cluster: Cluster) -> tuple[int | None, int, int]:
    """As the spec has them, as the StatefulSet has them, and as prefill's status tells."""
    spec = cluster.must_get(paths.KVSERVINGS, NAME)["spec"]["prefill"].get("replicas")
    workload = cluster.must_get(paths.STATEFULSETS, PREFILL)["spec"]["replicas"]
    return spec, workload, cluster.status(NAME).get("prefill", {}).get("ready", 0)


def wait_replicas(cluster: Cluster, count: int, memory: str) -> None:
    def there() -> bool:
        report(cluster, memory)
        return replicas(cluster) == (count, count, count)

    wait_for(
        there,
        what=f"{count} prefill replicas",
        more=lambda: str([replicas(cluster), autoscaler(cluster)]),
    )


def autoscaler(cluster: Cluster) -> Object:
    return {
        c["type"]: f"{c['status']} {c['reason']}: {c['message']}"
        for c in cluster.must_get(AUTOSCALERS, NAME).get("status", {}).get("conditions", ())
    }


def applied_from_git(cluster: Cluster) -> None:
    """The manifest as an autoscaler wants it: without the replicas of prefill."""
    manifest = example(NAME)
    manifest["spec"]["prefill"].pop("replicas", None)
    server = Server(cluster.plane.kubeconfig)
    answer = server.apply(cluster.namespace, manifest, manager="gitops")
    assert answer.ok, answer.message


@pytest.mark.usefixtures("metrics_api")
def test_an_autoscaler_owns_the_replicas_of_prefill(served: Served) -> None:
    cluster = served.cluster
    applied_from_git(cluster)
    cluster.settled(NAME)
    mark = cluster.mark()
    cluster.plane.api.create(AUTOSCALERS.path(cluster.namespace), HPA)
    wait_for(
        lambda: "FailedGetScale" in autoscaler(cluster).get("AbleToScale", ""),
        what="no scale while prefill.replicas is absent, as the limits say",
        more=lambda: str(autoscaler(cluster)),
    )
    # Set once, by anybody, and kept out of Git.
    cluster.patch(paths.KVSERVINGS, NAME, {"spec": {"prefill": {"replicas": 1}}})
    wait_replicas(cluster, 3, "900Mi")
    applied_from_git(cluster)
    served.cluster.delete(paths.SERVICES, NAME)  # the pass that repairs it has seen both
    wait_for(lambda: cluster.get(paths.SERVICES, NAME), what="a later pass")
    assert replicas(cluster)[:2] == (3, 3)
    wait_replicas(cluster, 1, "1Mi")
    scaled = [
        w
        for w in cluster.plane.audit.writes(mark)
        if w.resource == "kvservings" and w.namespace == cluster.namespace
    ]
    by_autoscaler = [w for w in scaled if w.by("horizontal-pod-autoscaler")]
    assert {w.subresource for w in by_autoscaler} == {"scale"}
    assert {w.subresource for w in scaled if w.user_agent == "kvserving-operator"} == {"status"}
    assert "ScalingActive" in autoscaler(cluster)
    cluster.delete(AUTOSCALERS, NAME)


def test_kubectl_scales_prefill(served: Served) -> None:
    cluster = served.cluster
    applied_from_git(cluster)
    cluster.patch(paths.KVSERVINGS, NAME, {"spec": {"prefill": {"replicas": 1}}})
    cluster.settled(NAME)
    command = [str(cluster.plane.program("kubectl")), "--kubeconfig", str(cluster.plane.kubeconfig)]
    command += ["-n", cluster.namespace, "scale", f"kvservings/{NAME}", "--replicas=2"]
    subprocess.run([*command, "--current-replicas=1"], check=True, capture_output=True)
    wait_for(
        lambda: replicas(cluster) == (2, 2, 2),
        what="two prefill replicas",
        more=lambda: str(replicas(cluster)),
    )
    cluster.settled(NAME)
    assert cluster.must_get(paths.STATEFULSETS, f"{NAME}-decode")["spec"]["replicas"] == 1
