"""Whose an object is: by label for finding, by owner reference for certainty. Pure."""

from collections.abc import Mapping
from typing import Any

from kvserving_operator.api import meta
from kvserving_operator.plan.model import Manifest


def is_ours(manifest: Manifest, uid: str) -> bool:
    """True when the object's controller is the KVServing with this uid."""
    references = manifest["metadata"].get("ownerReferences") or []
    return any(ref.get("uid") == uid and ref.get("controller") for ref in references)


def is_predecessors(manifest: Manifest, name: str, uid: str) -> bool:
    """True when its controller was an earlier KVServing of this name: it is being collected."""
    references = manifest["metadata"].get("ownerReferences") or []
    return any(
        ref.get("controller")
        and (ref.get("kind"), ref.get("name")) == (meta.KIND, name)
        and str(ref.get("apiVersion", "")).partition("/")[0] == meta.GROUP
        and ref.get("uid") != uid
        for ref in references
    )


def labels_of(manifest: Manifest) -> Mapping[str, Any]:
    """The labels of an object; empty when it has none."""
    labels: Mapping[str, Any] = manifest["metadata"].get("labels") or {}
    return labels


def selector(name: str, role: str = "") -> str:
    """Label selector of the objects of one KVServing, or of the pods of one of its roles."""
    whose = f"{meta.LABEL_KVSERVING}={name}"
    return f"{whose},{meta.LABEL_ROLE}={role}" if role else whose
