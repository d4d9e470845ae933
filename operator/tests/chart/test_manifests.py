"""What the chart renders is valid, restricted and consistent, whatever the values."""

from __future__ import annotations

from functools import cache
from typing import Any

import kubernetes_validate
import pytest

from . import helm

CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
# Kinds that are no part of Kubernetes; their schema is their owner's.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}

every_case = pytest.mark.parametrize("case", helm.cases())


@every_case
def test_lint_is_strict_and_clean(case: str) -> None:
    values = str(helm.VALUES / f"{case}.yaml")
    done = helm.run("lint", "--strict", str(helm.CHART), "-f", values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@every_case
@pytest.mark.parametrize("version", helm.KUBERNETES)
def test_manifests_are_strictly_valid(case: str, version: str) -> None:
    found = helm.documents(case, "--kube-version", version)
    assert "Deployment" in {helm.read(document)["kind"] for document in found}
    for document in found:
        validate(document, version)


@cache
def validate(document: str, version: str) -> None:
    """Once for each text: most manifests are the same in all cases, the CRD is a large one."""
    manifest = helm.read(document)
    if manifest["kind"] not in FOREIGN:
        kubernetes_validate.validate(manifest, version, strict=True)


@every_case
def test_every_object_is_named_labelled_and_in_its_namespace(case: str) -> None:
    seen = set()
    served = {"serving", "staging", "mine"}
    for manifest in helm.objects(case):
        metadata = manifest["metadata"]
        key = (manifest["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in seen
        seen.add(key)
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "kvserving"
        if manifest["kind"] in CLUSTER_SCOPED:
            assert "namespace" not in metadata
        else:
            assert metadata["namespace"] in {helm.NAMESPACE} | served


@every_case
def test_rendering_twice_gives_the_same_bytes(case: str) -> None:
    first = helm.text(case)
    helm.text.cache_clear()
    assert helm.text(case) == first


def test_an_old_kubernetes_is_refused() -> None:
    done = helm.run("template", "x", str(helm.CHART), "--kube-version", "1.32.0")
    assert done.returncode != 0
    assert "1.33" in done.stderr


@every_case
def test_the_pod_meets_pod_security_restricted(case: str) -> None:
    pod = helm.only(case, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {next(iter(set(v) - {"name"})) for v in pod["volumes"]} == {"emptyDir"}


@every_case
def test_selectors_find_the_pods_and_nothing_else_changes_them(case: str) -> None:
    deployment = helm.only(case, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = {
        "app.kubernetes.io/name": "kvserving-operator",
        "app.kubernetes.io/instance": helm.RELEASE,
    }
    assert deployment["spec"]["selector"] == {"matchLabels": selector}
    assert selector.items() <= labels.items()
    for kind in ("PodDisruptionBudget", "Service", "NetworkPolicy", "ServiceMonitor"):
        for manifest in helm.of_kind(case, kind):
            spec = manifest["spec"]
            found = spec.get("selector") or spec["podSelector"]
            assert found.get("matchLabels", found) == selector


def test_one_replica_has_no_budget_and_two_have_one() -> None:
    assert helm.of_kind("default", "PodDisruptionBudget") == []
    assert helm.only("two-replicas", "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert helm.of_kind("minimal", "PodDisruptionBudget") == [], "switched off"


def test_replicas_keep_apart_unless_told_otherwise() -> None:
    def affinity(case: str) -> Any:
        return helm.only(case, "Deployment")["spec"]["template"]["spec"].get("affinity", {})

    assert affinity("default") == {}
    assert list(affinity("two-replicas")) == ["podAntiAffinity"]
    assert list(affinity("everything")) == ["nodeAffinity"]


def test_monitoring_reaches_the_port_that_the_container_has() -> None:
    (container,) = helm.only("two-replicas", "Deployment")["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert port == {"name": "http", "containerPort": 8080}
    (service_port,) = helm.only("two-replicas", "Service")["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]
    monitor = helm.only("two-replicas", "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["interval"]) == (service_port["name"], "15s")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (rule,) = helm.only("two-replicas", "NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert helm.only("minimal", "NetworkPolicy")["spec"]["ingress"] == []


def test_the_image_by_tag_and_by_digest() -> None:
    def image(case: str) -> str:
        (container,) = helm.only(case, "Deployment")["spec"]["template"]["spec"]["containers"]
        return str(container["image"])

    assert image("default") == "ghcr.io/kvserving/operator:0.1.0"
    assert image("everything") == (
        "registry.example:5000/kvserving/operator@sha256:" + "0123456789abcdef" * 4
    )


@pytest.mark.parametrize(("case", "namespace"), [("default", "default"), ("namespaced", "serving")])
def test_the_notes_name_the_next_command(case: str, namespace: str) -> None:
    values = str(helm.VALUES / f"{case}.yaml")
    done = helm.run(
        "install", helm.RELEASE, str(helm.CHART), "-n", helm.NAMESPACE, "-f", values,
        "--dry-run=client",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "kubectl apply -f -" in notes
    assert f"kubectl -n {namespace} get kvs -w" in notes
    assert f"kubectl -n {helm.NAMESPACE} logs deploy/{helm.RELEASE}" in notes
