"""Fields that the API server lets nobody change, and how they change all the same. Pure.

A StatefulSet whose volumeClaimTemplates, serviceName or podManagementPolicy are to differ is
deleted without its pods, which run on, and made again; the new one takes them over by their labels.
"""

from typing import Any, Final

from kvserving_operator.kube import paths
from kvserving_operator.kube.diff import needs_apply
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.plan.model import Manifest
from kvserving_operator.render.metadata import digest

_FROZEN: Final = {
    paths.STATEFULSETS: ("serviceName", "podManagementPolicy", "volumeClaimTemplates"),
}


def frozen_changes(rendered: Manifest, live: Manifest) -> tuple[str, ...]:
    """The frozen fields of a live object that would have to change."""
    spec, stored = rendered.get("spec", {}), live.get("spec") or {}
    return tuple(
        field
        for field in _FROZEN.get(resource_of(rendered), ())
        if _differ(spec.get(field), stored.get(field), field)
    )


def probe(rendered: Manifest) -> Manifest:
    """What is rendered, under a name that nobody has: for asking the server whether it is good.

    The object itself cannot be asked about: the server would refuse the frozen fields, and without
    them the rest need not make sense (a mount without its claim).
    """
    metadata = rendered["metadata"]
    stem = metadata["name"].rpartition("-")[0]
    # Not a word: a StatefulSet of somebody's may have it, and the answer would be about that one.
    return {**rendered, "metadata": {**metadata, "name": f"{stem}-{digest(metadata)[:7]}"}}


def _differ(wanted: Any, stored: Any, field: str) -> bool:
    if not wanted:
        return bool(stored) and field == "volumeClaimTemplates"
    return needs_apply({"spec": {field: wanted}}, {"spec": {field: stored}})
