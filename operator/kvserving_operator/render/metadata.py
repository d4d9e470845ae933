"""Metadata of children: labels, owner, and the hash of what was rendered. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kvserving_operator.api import meta
from kvserving_operator.plan.labels import child_labels
from kvserving_operator.plan.model import Manifest, OwnerReference, Plan


def metadata(
    plan: Plan,
    name: str,
    component: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The metadata of a child, without owner and hash."""
    result: dict[str, Any] = {
        "name": name,
        "namespace": plan.namespace,
        "labels": {**(labels or {}), **child_labels(plan.name, component)},
    }
    if annotations:
        result["annotations"] = dict(annotations)
    return result


def seal(manifest: Manifest, owner: OwnerReference) -> Manifest:
    """The child as it is applied: with its owner, and with the hash of everything before.

    A copy: whoever gets it may change it without changing the plan or the spec.
    """
    owned = {
        **manifest,
        "metadata": {**manifest["metadata"], "ownerReferences": [_reference(owner)]},
    }
    annotations = {
        **owned["metadata"].get("annotations", {}),
        meta.ANNOTATION_RENDER_HASH: digest(owned),
    }
    sealed = {**owned, "metadata": {**owned["metadata"], "annotations": annotations}}
    copied: Manifest = _copied(sealed)
    return copied


def _copied(value: Any) -> Any:
    """Plain dicts and lists all the way down, shared with nobody."""
    if isinstance(value, str | int):  # first: whether something is a Mapping takes long to find out
        return value
    if isinstance(value, dict | Mapping):
        return {field: _copied(inner) for field, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(inner) for inner in value]
    return value


def unsealed(manifest: Manifest) -> Manifest:
    """The child before it was sealed, so that it can be changed and sealed again."""
    fields = {k: v for k, v in manifest["metadata"].items() if k != "ownerReferences"}
    annotations = dict(fields.pop("annotations"))
    del annotations[meta.ANNOTATION_RENDER_HASH]
    if annotations:
        fields["annotations"] = annotations
    return {**manifest, "metadata": fields}


def label(manifest: Manifest) -> str:
    """Kind and name: what tells children of one KVServing apart, also in messages."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def digest(*values: Any) -> str:
    """SHA-256 of JSON data, equal for equal data whatever the order of its keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _reference(owner: OwnerReference) -> dict[str, Any]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
