"""Builders of pods and workloads as the API server holds them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_UIDS: list[str] = []


def address_of(uid: str) -> str:
    """An address of this machine, of this pod's own: whoever answers there knows who is meant."""
    if uid not in _UIDS:
        _UIDS.append(uid)
    number = _UIDS.index(uid)
    return f"127.1.{number // 250}.{number % 250 + 1}"


def uid_at(address: str) -> str:
    """The pod that was given this address."""
    _, _, high, low = map(int, address.split("."))
    return _UIDS[250 * high + low - 1]


def pod(
    name: str,
    *,
    revision: str = "new",
    ready: bool = True,
    terminating: bool = False,
    role: str = "decode",
    owner: str = "sts-uid",
    containers: list[Object] | None = None,
    conditions: list[Object] | None = None,
) -> Object:
    """A pod of a role of KVServing x."""
    metadata: Object = {
        "name": name,
        "namespace": "n",
        "uid": f"uid-{name}",
        "labels": {
            "kvserving.io/kvserving": "x",
            "kvserving.io/role": role,
            "controller-revision-hash": revision,
        },
        "ownerReferences": [{"uid": owner, "controller": True}],
    }
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    state = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "status": {
            "conditions": [state, *(conditions or [])],
            "containerStatuses": containers or [],
        },
    }


def container(name: str = "engine", *, ready: bool = False, **more: Any) -> Object:
    """A container status."""
    return {"name": name, "image": "reg/engine:1", "ready": ready, "restartCount": 0} | more


def waiting(reason: str, message: str = "") -> Object:
    """A state of a container."""
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "Error") -> Object:
    """A state of a container."""
    return {"terminated": {"exitCode": code, "reason": reason}}


def statefulset(
    *, replicas: int = 2, revision: str = "new", generation: int = 1, observed: int = 1
) -> Object:
    """The StatefulSet of the role."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "x-decode", "uid": "sts-uid", "generation": generation},
        "spec": {"replicas": replicas, "updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": observed, "updateRevision": revision},
    }
