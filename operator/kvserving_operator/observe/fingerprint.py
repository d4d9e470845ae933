"""What a watch event must change to be worth a pass. Pure.

Workload controllers and kubelets touch objects far more often than anything we read changes; an
event whose fingerprint equals the last one is noise. A fingerprint may contain too much (a wasted
pass) but never too little (a missed one): it holds what `gather`, `pods` and `health` read, and
everything that a hand edit can change.
"""

import json
from collections.abc import Hashable
from typing import Any

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.observe.pods import FINISHED
from kvserving_operator.plan.model import Manifest

# Bookkeeping of other writers in annotations, which nothing here reads.
_IGNORED_ANNOTATIONS = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/revision",
    }
)
_WORKLOAD_STATUS = (
    "observedGeneration",
    "replicas",
    "readyReplicas",
    "updatedReplicas",
    "updateRevision",
)
_WITH_GENERATION = frozenset(
    {
        paths.KVSERVINGS,
        paths.STATEFULSETS,
        paths.DEPLOYMENTS,
        paths.NETWORK_POLICIES,
        paths.POD_DISRUPTION_BUDGETS,
    }
)


def fingerprint(resource: Resource, manifest: Manifest) -> Hashable:
    """A value that differs between two states of an object when a pass could tell them apart."""
    metadata = manifest["metadata"]
    if resource is paths.PODS:
        return _digest([_metadata(metadata), _pod_status(manifest.get("status") or {})])
    if resource not in _WITH_GENERATION:
        # ConfigMaps, Services, Roles: no generation, and hardly ever touched.
        return _digest([metadata.get("uid"), metadata.get("resourceVersion")])
    status = manifest.get("status") or {}
    read = {}
    if resource in {paths.STATEFULSETS, paths.DEPLOYMENTS}:
        read = {field: status.get(field) for field in _WORKLOAD_STATUS}
    return _digest([_metadata(metadata), metadata.get("generation"), read])


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    annotations = metadata.get("annotations") or {}
    return {
        "uid": metadata.get("uid"),
        "deleted": metadata.get("deletionTimestamp"),
        "labels": metadata.get("labels"),
        "annotations": {k: v for k, v in annotations.items() if k not in _IGNORED_ANNOTATIONS},
        "owners": metadata.get("ownerReferences"),
    }


def _pod_status(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "finished": status.get("phase") in FINISHED,
        "conditions": [
            {field: condition.get(field) for field in ("type", "status", "reason", "message")}
            for condition in status.get("conditions") or ()
            if condition.get("type") in {"Ready", "PodScheduled"}
        ],
        "containers": [
            _container(container)
            for group in ("initContainerStatuses", "containerStatuses")
            for container in status.get(group) or ()
        ],
    }


def _container(container: dict[str, Any]) -> dict[str, Any]:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("state") or {}).get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    return {
        "name": container.get("name"),
        "image": container.get("image"),
        "ready": container.get("ready"),
        "restarts": container.get("restartCount"),
        "waiting": [waiting.get("reason"), waiting.get("message")],
        "ended": [ended.get("reason"), ended.get("exitCode")],
        "last": [last.get("reason"), last.get("exitCode")],
    }


def _digest(value: Any) -> int:
    # Kept per watched object for as long as it lives: a number, not the two kilobytes behind it.
    return hash(json.dumps(value, sort_keys=True))
