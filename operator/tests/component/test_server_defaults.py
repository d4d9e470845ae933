"""What the API server and its policies write otherwise than we do is written by us once."""

from __future__ import annotations

import json

from kvserving_operator.kube import paths
from tests.unit.render.edits import base

from .harness import Object, Served, example, wait_for

SPELLINGS: Object = {
    "resources": {"requests": {"cpu": "0.2", "memory": "1.50Gi"}, "limits": {}},
    "podTemplate": {
        "metadata": {"labels": {}, "annotations": {"example.com/empty": ""}},
        "spec": {
            "nodeSelector": {},
            "tolerations": [{"key": "a", "operator": "Equal", "value": "", "effect": ""}],
            "affinity": {"nodeAffinity": {}},
            "volumes": [
                {"name": "made", "emptyDir": {"sizeLimit": "0.5Gi", "medium": ""}},
                {"name": "given", "configMap": {"name": "given", "items": []}},
            ],
            "containers": [
                {
                    "name": "shipper",
                    "image": "shipper:1",
                    "command": [],
                    "env": [{"name": "E", "value": ""}],
                    "ports": [{"containerPort": 3000}],
                    "resources": {"limits": {"cpu": 0.1, "memory": "64000Ki"}, "requests": {}},
                    "readinessProbe": {"httpGet": {"port": 3000}},
                }
            ],
        },
    },
}
"""What the API server stores otherwise: other quantities, no empty maps, its own defaults."""


def test_what_the_server_writes_otherwise_is_written_once(served: Served) -> None:
    cluster, name = served.cluster, "spelled"
    obj = base(name)
    obj["metadata"] = {"name": name}
    for part in ("prefill", "decode", "router"):
        obj["spec"][part] |= json.loads(json.dumps(SPELLINGS))
    cluster.create(obj)
    cluster.settled(name)
    stored = cluster.must_get(paths.STATEFULSETS, f"{name}-decode")["spec"]["template"]["spec"]
    shipper = next(c for c in stored["containers"] if c["name"] == "shipper")
    assert shipper["resources"]["limits"]["cpu"] == "100m"
    assert "affinity" not in stored or stored["affinity"] == {"nodeAffinity": {}}
    _another_pass_writes_nothing(served, name)


ODD = "\x7f\x85\u2028\ufeff\uffff \U0001f980 'é"
"""Characters that a reader of YAML refuses, or takes for the end of a line, unless escaped."""


def test_any_character_of_a_text_gets_to_the_pods(served: Served) -> None:
    cluster, name = served.cluster, "odd"
    obj = base(name)
    obj["metadata"] = {"name": name}
    obj["spec"]["decode"]["env"] = [{"name": "ODD", "value": ODD}]
    obj["spec"]["decode"]["workloadAnnotations"] = {"example.com/odd": ODD}
    cluster.create(obj)
    cluster.settled(name)
    stored = cluster.must_get(paths.STATEFULSETS, f"{name}-decode")
    assert stored["metadata"]["annotations"]["example.com/odd"] == ODD
    containers = stored["spec"]["template"]["spec"]["containers"]
    engine = next(c for c in containers if c["name"] == "engine")
    assert {"name": "ODD", "value": ODD} in engine["env"]
    _another_pass_writes_nothing(served, name)


POLICY_API = "/apis/admissionregistration.k8s.io/v1"
DEFAULTER: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["statefulsets", "deployments"],
                }
            ]
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": """Object{
                        metadata: Object.metadata{labels: {"cost-centre": "7"}},
                        spec: Object.spec{template: Object.spec.template{
                            metadata: Object.spec.template.metadata{annotations: {"added": "1"}},
                            spec: Object.spec.template.spec{
                                schedulerName: "gang",
                                volumes: [Object.spec.template.spec.volumes{
                                    name: "added",
                                    emptyDir: Object.spec.template.spec.volumes.emptyDir{
                                        medium: "Memory"}}]}}}}"""
                },
            }
        ],
    },
}


def test_what_an_admission_policy_adds_is_neither_fought_nor_rewritten(served: Served) -> None:
    """Clusters add labels, volumes, schedulers of their own: here by a policy of the server."""
    cluster, name = served.cluster, "added"
    policy = {**DEFAULTER, "metadata": {"name": cluster.namespace}}
    policy["spec"] = {
        **DEFAULTER["spec"],
        "matchConstraints": {
            **DEFAULTER["spec"]["matchConstraints"],
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}
            },
        },
    }
    binding = {"policyName": cluster.namespace}
    api = cluster.plane.api
    api.create(f"{POLICY_API}/mutatingadmissionpolicies", policy)
    api.create(
        f"{POLICY_API}/mutatingadmissionpolicybindings",
        {"metadata": {"name": cluster.namespace}, "spec": binding},
    )
    probe = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "probe"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "c"}]},
            },
        },
    }
    path = f"{paths.DEPLOYMENTS.path(cluster.namespace)}?dryRun=All"
    wait_for(
        lambda: "cost-centre" in api.create(path, probe)["metadata"].get("labels", {}),
        what="the policy is in force",
    )
    try:
        cluster.create(example(name))
        cluster.settled(name)
        for workload in (f"{name}-prefill", f"{name}-decode", f"{name}-valkey"):
            stored = cluster.must_get(paths.STATEFULSETS, workload)
            assert stored["metadata"]["labels"]["cost-centre"] == "7"
            added = stored["spec"]["template"]["spec"]["volumes"]
            assert {"name": "added", "emptyDir": {"medium": "Memory"}} in added
        _another_pass_writes_nothing(served, name)
    finally:
        api.delete(f"{POLICY_API}/mutatingadmissionpolicybindings/{cluster.namespace}")
        api.delete(f"{POLICY_API}/mutatingadmissionpolicies/{cluster.namespace}")


def _another_pass_writes_nothing(served: Served, name: str) -> None:
    cluster, operator = served.cluster, served.operator
    mark, passes = cluster.mark(), "kvserving_operator_passes_total"
    before = operator.metric(passes)
    cluster.patch(paths.KVSERVINGS, name, {"metadata": {"annotations": {"look": "again"}}})
    wait_for(
        lambda: (
            operator.metric(passes) > before
            and operator.metric("kvserving_operator_queue_due") == 0
        ),
        what="another pass",
    )
    assert [str(write) for write in cluster.writes(mark) if name in write.name] == []
    assert not operator.said(f"{name}.* is stored differently")
