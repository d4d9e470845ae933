"""What is wanted in the light of what was wanted before. Pure.

A new rendering replaces an older one when the spec asks for it, not when the operator has become
another: the pod templates and configurations of engines and tier keep the form in which they were
accepted until a change of the spec touches them. What "touches" means is no list of fields but a
comparison: this operator renders the accepted spec and the present one, and looks for differences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kvserving_operator.api import meta
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.kube import paths
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan import build
from kvserving_operator.plan.model import (
    AuthMaterial,
    Defaults,
    Manifest,
    OwnerReference,
    Plan,
    Refusal,
)
from kvserving_operator.plan.naming import child_names
from kvserving_operator.render import render
from kvserving_operator.render.accepted import (
    Record,
    auth_digest,
    held_parts,
    identity,
    parse_record,
    record_manifest,
    with_part,
)
from kvserving_operator.render.metadata import seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The children of one KVServing, the record of them included."""

    manifests: tuple[Manifest, ...]
    held: tuple[str, ...] = ()
    """Kind and name of those that this operator would render differently by itself."""


def stored_record(observed: Observed, name: str) -> Record | None:
    """What was last accepted for this object, if anything."""
    return parse_record(observed.child(paths.CONFIGMAPS, child_names(name).accepted))


def plan_of(live: Manifest, spec: Mapping[str, Any], defaults: Defaults) -> Plan | None:
    """The plan of another spec of the same object; None when this operator refuses it."""
    try:
        planned = build(KVServing.parse({**live, "spec": dict(spec)}), defaults)
    except ValidationError:
        return None
    return None if isinstance(planned, Refusal) else planned


def wanted(
    live: Manifest, plan: Plan, record: Record | None, auth: AuthMaterial, defaults: Defaults
) -> Wanted:
    """The children that ``plan`` asks for, each in the form that is in force for it."""
    owner, adopt = owner_of(live), _adopt(live)
    fresh = render(plan, auth, owner)
    kept: dict[str, Mapping[str, Any]] = {}
    if record is not None and record.auth == auth_digest(auth) and record.adopt == adopt:
        own, before = held_parts(fresh), _rendered_before(live, fresh, record, auth, defaults)
        kept = {
            name: part
            for name, part in record.parts.items()
            if name in own and own[name] != part and before.get(name) == own[name]
        }
    settled = tuple(
        with_part(m, kept[identity(m)], owner) if identity(m) in kept else m for m in fresh
    )
    entry = Record(
        spec=live["spec"], auth=auth_digest(auth), adopt=adopt, parts=held_parts(settled)
    )
    manifests = (seal(record_manifest(plan, entry), owner), *settled)
    return Wanted(manifests=manifests, held=tuple(sorted(kept)))


def last_good(
    live: Manifest, record: Record | None, auth: AuthMaterial, defaults: Defaults
) -> Wanted | None:
    """What is kept up while the present spec cannot be served; None when nothing is known."""
    plan = plan_of(live, record.spec, defaults) if record is not None else None
    if plan is None or record is None:
        return None
    accepted = {**live, "spec": dict(record.spec)}
    return wanted(accepted, plan, record, auth, defaults)


def owner_of(live: Manifest) -> OwnerReference:
    """The KVServing as the controller of its children."""
    metadata = live["metadata"]
    return OwnerReference(
        api_version=meta.API_VERSION, kind=meta.KIND, name=metadata["name"], uid=metadata["uid"]
    )


def _rendered_before(
    live: Manifest,
    fresh: tuple[Manifest, ...],
    record: Record,
    auth: AuthMaterial,
    defaults: Defaults,
) -> dict[str, Mapping[str, Any]]:
    """The same parts as this operator renders them for the accepted spec."""
    if record.spec == live["spec"]:
        return held_parts(fresh)
    earlier = plan_of(live, record.spec, defaults)
    return {} if earlier is None else held_parts(render(earlier, auth, owner_of(live)))


def _adopt(live: Manifest) -> str:
    annotations = live["metadata"].get("annotations") or {}
    return str(annotations.get(meta.ANNOTATION_ADOPT, ""))
