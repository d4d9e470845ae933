"""ConfigMap ``X-accepted``: what the operator last agreed to, for when it cannot ask. Pure.

It holds the spec that was last accepted, so that what runs is repaired while a later spec is
refused; and the engines' and the tier's objects as they were rendered then, so that an operator of
another version does not restart engines for a spec that nobody has changed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kvserving_operator.plan.model import AuthMaterial, Manifest, OwnerReference, Plan
from kvserving_operator.render.metadata import digest, label, metadata, seal, unsealed

COMPONENT: Final = "accepted"
KEY: Final = "accepted.json"
_PARTS: Final = {"StatefulSet": ("spec", "template"), "ConfigMap": ("data",)}
"""By kind: the part whose change restarts pods of engines or tier, or changes under them. The
router's Deployment is not here: it has no state, and rolls without a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The content of ``X-accepted``."""

    spec: Mapping[str, Any]
    """As the API server stored it."""
    auth: str
    """Signature of the rest by the secrets that it was rendered with."""
    adopt: str
    """Value of annotation kvserving.io/adopt at that time."""
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By ``label``: pod templates and configurations, as they were applied."""


def auth_digest(auth: AuthMaterial) -> str:
    """Tells one set of secrets from another without holding any."""
    return digest(auth.agent_token, auth.engine_password, auth.operator_password)


def held_parts(manifests: Iterable[Manifest]) -> dict[str, Mapping[str, Any]]:
    """What a record keeps of the children, by ``label``."""
    return {
        label(each): _part(each, _PARTS[each["kind"]])
        for each in manifests
        if each["kind"] in _PARTS
    }


def with_part(manifest: Manifest, part: Mapping[str, Any], owner: OwnerReference) -> Manifest:
    """A child with the part of a record in place of its own."""
    return seal(_replaced(unsealed(manifest), _PARTS[manifest["kind"]], part), owner)


def record_manifest(plan: Plan, record: Record) -> Manifest:
    """The ConfigMap, without owner and hash."""
    content = {
        "spec": record.spec,
        "auth": record.auth,
        "adopt": record.adopt,
        "parts": record.parts,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(plan, plan.names.accepted, COMPONENT),
        "data": {KEY: text},
    }


def parse_record(manifest: Manifest | None) -> Record | None:
    """The record in a live ConfigMap; None when there is none or somebody has spoilt it."""
    try:
        content = json.loads((manifest or {})["data"][KEY])
        return Record(
            spec=dict(content["spec"]),
            auth=str(content["auth"]),
            adopt=str(content["adopt"]),
            parts={str(name): dict(each) for name, each in content["parts"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _part(manifest: Manifest, path: Sequence[str]) -> Mapping[str, Any]:
    found: Any = manifest
    for field_ in path:
        found = found[field_]
    return dict(found)


def _replaced(manifest: Manifest, path: Sequence[str], part: Mapping[str, Any]) -> Manifest:
    first, *rest = path
    return {**manifest, first: _replaced(manifest[first], rest, part) if rest else part}
