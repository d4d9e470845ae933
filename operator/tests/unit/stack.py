"""From a few changed fields to a plan, its faults or its objects: for tests of the pure core."""

import json
from functools import cache
from typing import Any

from kvserving_operator import plan
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Manifest, Plan, Refusal
from kvserving_operator.render import render
from tests.unit.api.builders import make

DEFAULTS = plan.Defaults(
    agent_image="kvserving/operator:1",
    router_image="kvserving/router:1",
    operator_namespace="kvserving-system",
    operator_labels={"app.kubernetes.io/name": "kvserving-operator"},
)
AUTH = plan.AuthMaterial(
    agent_token="token-0123456789",
    engine_password="engine-0123456789",
    operator_password="operator-0123456789",
    tier_id="tier0123456789",
)
CPU = {"decode.accelerator": {"resourceName": ""}}
SPLIT = {"prefill": {}}
CPU_SPLIT = {**CPU, "prefill.accelerator": {"resourceName": ""}}
TIER = {
    "model.attention": "MLA",
    "kvCache.remote": {"type": "Managed", "memoryPerInstance": "8Gi"},
}


def kvserving(changes: dict[str, Any] | None = None, *, name: str = "x") -> KVServing:
    return KVServing.parse(make(changes, name=name))


def planned(changes: dict[str, Any] | None = None, *, name: str = "x") -> Plan:
    return _planned(json.dumps(changes), name)


@cache
def _planned(changes: str, name: str) -> Plan:
    built = plan.build(kvserving(json.loads(changes), name=name), DEFAULTS)
    assert isinstance(built, Plan), [str(fault) for fault in built.faults]
    return built


def refused(changes: dict[str, Any] | None = None, *, name: str = "x") -> dict[str, plan.Fault]:
    """The faults by field."""
    built = plan.build(kvserving(changes, name=name), DEFAULTS)
    assert isinstance(built, Refusal), "the spec was accepted"
    return {fault.field: fault for fault in built.faults}


def owner(name: str = "x") -> plan.OwnerReference:
    return plan.OwnerReference(
        api_version="kvserving.io/v1alpha1", kind="KVServing", name=name, uid="uid-1"
    )


def rendered(changes: dict[str, Any] | None = None, *, name: str = "x") -> tuple[Manifest, ...]:
    """The objects, the same ones for the same changes: do not change them."""
    return _rendered(json.dumps(changes), name)


@cache
def _rendered(changes: str, name: str) -> tuple[Manifest, ...]:
    return render(_planned(changes, name), AUTH, owner(name))


def one(objects: tuple[Manifest, ...], kind: str, name: str) -> Manifest:
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def kinds(objects: tuple[Manifest, ...]) -> set[str]:
    return {f"{o['kind']}/{o['metadata']['name']}" for o in objects}


def pod_spec(objects: tuple[Manifest, ...], name: str, kind: str = "StatefulSet") -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, kind, name)["spec"]["template"]["spec"]
    return spec


def container(spec: dict[str, Any], name: str) -> dict[str, Any]:
    listed = [*spec["containers"], *spec.get("initContainers", [])]
    found = [c for c in listed if c["name"] == name]
    assert len(found) == 1, f"{len(found)} containers {name}"
    result: dict[str, Any] = found[0]
    return result


def option(arguments: list[str] | tuple[str, ...], flag: str) -> str | None:
    """The element after ``flag``, or None when the flag is absent."""
    listed = list(arguments)
    return listed[listed.index(flag) + 1] if flag in listed else None
