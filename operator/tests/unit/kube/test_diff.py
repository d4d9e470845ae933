"""Comparison of rendered with live: what the server rewrites is no difference, an edit is one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvserving_operator.kube.diff import differences, needs_apply

Object = dict[str, Any]

RENDERED: Object = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {
        "name": "x",
        "namespace": "n",
        "labels": {"a": "b"},
        "annotations": {"kvserving.io/render-hash": "1"},
        "ownerReferences": [{"uid": "u", "kind": "KVServing", "name": "x", "controller": True}],
    },
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "hostNetwork": False,
                "containers": [
                    {
                        "name": "engine",
                        "args": ["m", "--tp", "1"],
                        "env": [{"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""}],
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "resources": {"limits": {"cpu": 0.2, "memory": "1024Mi"}},
                        "volumeMounts": [{"mountPath": "/tmp", "name": "tmp", "readOnly": False}],
                        "securityContext": {"allowPrivilegeEscalation": False},
                        "livenessProbe": {"initialDelaySeconds": 0, "httpGet": {"port": 8000}},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "nodeSelector": {},
            }
        },
    },
}


def live() -> Object:
    """What the API server makes of it, with the additions of other writers."""
    obj = copy.deepcopy(RENDERED)
    obj["metadata"] |= {
        "uid": "s",
        "resourceVersion": "7",
        "generation": 1,
        "managedFields": [{}],
        "annotations": {"kvserving.io/render-hash": "1", "other": "note"},
    }
    obj["metadata"]["ownerReferences"].append({"uid": "w", "kind": "Other", "name": "y"})
    obj["status"] = {"replicas": 2}
    pod = obj["spec"]["template"]["spec"]
    pod |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}
    del pod["nodeSelector"]
    del pod["hostNetwork"]
    container = pod["containers"][0]
    container["resources"]["limits"] = {"cpu": "200m", "memory": "1Gi"}
    container["ports"][0]["protocol"] = "TCP"
    container["env"] = [
        {"name": "EMPTY"},
        {"name": "INJECTED", "value": "x"},
        {"name": "A", "value": "1"},
    ]
    container["imagePullPolicy"] = "IfNotPresent"
    container["livenessProbe"] = {
        "periodSeconds": 10,
        "httpGet": {"port": 8000, "scheme": "HTTP"},
    }
    del container["volumeMounts"][0]["readOnly"]
    pod["containers"].insert(0, {"name": "sidecar", "image": "other"})
    return obj


def test_what_the_server_and_others_added_is_no_difference() -> None:
    assert list(differences(RENDERED, live())) == []
    assert not needs_apply(RENDERED, live())


CONTAINER = "spec/template/spec/containers/engine"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("spec/replicas", 3, "spec.replicas"),
        ("metadata/labels/a", "c", "metadata.labels.a"),
        ("metadata/labels/a", None, "metadata.labels.a"),
        (
            "metadata/annotations/kvserving.io~render-hash",
            "2",
            "metadata.annotations.kvserving.io/render-hash",
        ),
        ("metadata/ownerReferences", [], "ownerReferences"),
        (f"{CONTAINER}/args/2", "2", "args[2]"),
        (f"{CONTAINER}/args", ["m", "--tp", "1", "--more"], "args"),
        (f"{CONTAINER}/resources/limits/cpu", "300m", "limits.cpu"),
        (f"{CONTAINER}/ports/0/containerPort", 8001, "ports[8000/TCP]"),
        (f"{CONTAINER}/env", [{"name": "A", "value": "2"}, {"name": "EMPTY"}], "env[A].value"),
        (
            f"{CONTAINER}/securityContext/allowPrivilegeEscalation",
            None,
            "allowPrivilegeEscalation",
        ),
        ("spec/template/spec/volumes", None, "volumes"),
        (f"{CONTAINER}/livenessProbe/initialDelaySeconds", 5, "initialDelaySeconds"),
        ("spec/template/spec/hostNetwork", True, "hostNetwork"),
    ],
)
def test_an_edit_of_ours_is_found_and_named(path: str, value: Any, told: str) -> None:
    parts = [part.replace("~", "/") for part in path.split("/")]
    obj = live()
    target: Any = obj
    for part in parts[:-1]:
        if part == "engine":
            target = next(item for item in target if item["name"] == "engine")
        else:
            target = target[int(part)] if isinstance(target, list) else target[part]
    if value is None:
        target.pop(parts[-1], None)
    elif isinstance(target, list):
        target[int(parts[-1])] = value
    else:
        target[parts[-1]] = value
    found = list(differences(RENDERED, obj))
    assert found, "the edit was not seen"
    assert all(told in path for path in found), found


def test_values_are_never_told() -> None:
    secret = {"metadata": {"name": "s"}, "data": {"password": "c2VjcmV0"}}
    found = list(differences(secret, {"metadata": {"name": "s"}, "data": {"password": "b3RoZXI="}}))
    assert found == ["data.password"]


@pytest.mark.parametrize(
    ("rendered", "stored", "same"),
    [
        ({"limits": {"cpu": "0.2"}}, {"limits": {"cpu": "200m"}}, True),
        ({"limits": {"cpu": 2}}, {"limits": {"cpu": "2"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, True),
        ({"limits": {"memory": "1G"}}, {"limits": {"memory": "1Gi"}}, False),
        ({"limits": {"x": "nonsense"}}, {"limits": {"x": "other"}}, False),
        ({"emptyDir": {"sizeLimit": "512Mi"}}, {"emptyDir": {"sizeLimit": "536870912"}}, True),
        ({"port": 80}, {"port": "80"}, False),
        ({"port": "http"}, {"port": "http"}, True),
        ({"maxUnavailable": 1}, {"maxUnavailable": "1"}, False),
        ({"flag": True}, {"flag": 1}, False),
        ({"flag": False}, {}, False),
        ({"count": 0}, {}, True),
        ({"text": ""}, {}, True),
        ({"map": {}}, {}, True),
        ({"list": []}, {}, True),
        ({"list": []}, {"list": ["foreign"]}, False),
        ({"gone": None}, {}, True),
        ({"gone": None}, {"gone": "back"}, False),
        ({"map": {"a": {}}}, {"map": {}}, True),
        ({"map": {"a": {"b": 1}}}, {"map": {}}, False),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, True),
        ({"finalizers": ["a"]}, {"finalizers": ["b"]}, False),
    ],
)
def test_normalisation(rendered: Object, stored: Object, *, same: bool) -> None:
    assert needs_apply(rendered, stored) is not same


def test_service_ports_merge_and_policy_ports_do_not() -> None:
    service = {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
    more = {
        "spec": {
            "ports": [
                {"port": 81, "protocol": "TCP"},
                {"port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30000},
            ]
        }
    }
    assert not needs_apply(service, more)
    policy = {"spec": {"ingress": [{"ports": [{"port": 80}]}]}}
    opened = {"spec": {"ingress": [{"ports": [{"port": 80}, {"port": 22}]}]}}
    assert needs_apply(policy, opened)
    defaulted = {"spec": {"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}
    assert not needs_apply(policy, defaulted)


def test_an_added_policy_rule_is_a_difference() -> None:
    policy = {"spec": {"ingress": [{"from": [{"podSelector": {}}]}], "podSelector": {}}}
    opened = copy.deepcopy(policy)
    opened["spec"]["ingress"].append({})  # type: ignore[attr-defined]
    assert needs_apply(policy, opened)
