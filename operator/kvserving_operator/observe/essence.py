"""What is kept of a watched object between passes: all that a pass reads, and no more. Pure.

Most of a pod is its containers, and most of any object's JSON is managedFields; nothing here reads
either. What is kept of a pod is what `pods.read_pod`, `agents` and `labels` read, of a child what a
comparison with the rendered one and `health.read_workload` read.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.plan.model import Manifest

_POD_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "ownerReferences",
    "deletionTimestamp",
)
_POD_STATUS: Final = ("phase", "podIP", "initContainerStatuses", "containerStatuses")
_POD_CONDITIONS: Final = frozenset({"Ready", "PodScheduled"})
_CONTAINER: Final = ("name", "image", "ready", "restartCount", "state", "lastState")
_WORKLOADS: Final = (paths.STATEFULSETS, paths.DEPLOYMENTS)
_WORKLOAD_STATUS: Final = ("observedGeneration", "replicas", "updatedReplicas", "updateRevision")


def essence(resource: Resource, manifest: Manifest) -> Manifest:
    """The object without what no pass reads; shares its parts with the one given."""
    if resource is paths.PODS:
        return _pod(manifest)
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    kept = {k: v for k, v in manifest.items() if k != "status"} | {"metadata": metadata}
    if resource in _WORKLOADS and "status" in manifest:
        kept["status"] = _picked(manifest["status"], _WORKLOAD_STATUS)
    return kept


def _pod(manifest: Manifest) -> Manifest:
    status = manifest.get("status") or {}
    kept = _picked(status, _POD_STATUS)
    for group in ("initContainerStatuses", "containerStatuses"):
        if group in kept:
            kept[group] = [_picked(entry, _CONTAINER) for entry in kept[group] or ()]
    kept["conditions"] = [
        entry for entry in status.get("conditions") or () if entry.get("type") in _POD_CONDITIONS
    ]
    volumes = (manifest.get("spec") or {}).get("volumes") or ()
    return {
        **_picked(manifest, ("apiVersion", "kind")),
        "metadata": _picked(manifest["metadata"], _POD_METADATA),
        "spec": {"volumes": [v for v in volumes if v.get("persistentVolumeClaim")]},
        "status": kept,
    }


def _picked(source: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: source[field] for field in fields if field in source}
