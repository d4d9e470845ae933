"""What is wanted in the light of what was wanted before. Pure.

A new rendering replaces an older one when the spec asks for it, not when the operator has become
another: the pod templates and configurations of engines and tier keep the form in which they were
accepted until a change of the spec touches them. What "touches" means is no list of fields but a
comparison: this operator renders the accepted spec and the present one, and looks for differences.
"""

import hashlib
import hmac
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import (
    AuthMaterial,
    Defaults,
    Manifest,
    OwnerReference,
    Plan,
    Refusal,
)
from kvserving_operator.plan.naming import child_names
from kvserving_operator.plan.rotation import earlier
from kvserving_operator.reconcile.planning import planned_of
from kvserving_operator.render import render
from kvserving_operator.render.accepted import (
    Record,
    auth_digest,
    held_parts,
    parse_record,
    record_manifest,
    with_part,
)
from kvserving_operator.render.metadata import label, seal

logger = logging.getLogger(__name__)

_LARGEST_RECORD: Final = 1_000_000
"""Bytes. The API server takes a ConfigMap of 1 MiB, names and metadata included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The children of one KVServing, the record of them included."""

    manifests: tuple[Manifest, ...]
    held: tuple[str, ...] = ()
    """Kind and name of those that this operator would render differently by itself."""


def stored_record(observed: Observed, name: str) -> Record | None:
    """What was last accepted for this object, if anything: as it is stored, by whomever."""
    return parse_record(observed.child(paths.CONFIGMAPS, child_names(name).accepted))


def trusted_record(observed: Observed, name: str, auth: AuthMaterial) -> Record | None:
    """The record, unless somebody else has written in it.

    While the Secret is lost nothing proves a record: its spec is used then, its parts are not.
    """
    record = stored_record(observed, name)
    secret = observed.child(paths.SECRETS, child_names(name).auth)
    if record is None or secret is None or is_genuine(record, auth):
        return record
    logger.warning("the record of what was accepted was not written by us; it is made anew")
    return None


def is_genuine(record: Record, auth: AuthMaterial) -> bool:
    """Whether the record was written with these secrets, and has not been changed since.

    Whoever may edit ConfigMaps must not by that have pods of his own made by the operator.
    """
    return _written_with(record, auth) is not None


def _written_with(record: Record, auth: AuthMaterial) -> AuthMaterial | None:
    """The secrets that the record was written with: these, or those before a rotation's swap."""
    for each in (auth, earlier(auth)):
        if each is not None and hmac.compare_digest(
            record.auth.encode(), _signature(record, each).encode()
        ):
            return each
    return None


def _signature(record: Record, auth: AuthMaterial) -> str:
    content = {"spec": record.spec, "adopt": record.adopt, "parts": record.parts}
    # In ASCII, unlike ``digest``: a forger's record may hold what has no UTF-8.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(auth_digest(auth).encode(), text.encode(), hashlib.sha256).hexdigest()


def plan_of(live: Manifest, spec: Mapping[str, Any], defaults: Defaults) -> Plan | None:
    """The plan of another spec of the same object; None when this operator refuses it."""
    planned = planned_of({**live, "spec": dict(spec)}, defaults)
    return None if isinstance(planned, Refusal) else planned


def wanted(
    live: Manifest, plan: Plan, record: Record | None, auth: AuthMaterial, defaults: Defaults
) -> Wanted:
    """The children that ``plan`` asks for, each in the form that is in force for it."""
    owner, adopt = owner_of(live), _adopt(live)
    fresh = render(plan, auth, owner)
    kept: dict[str, Mapping[str, Any]] = {}
    signer = None if record is None else _written_with(record, auth)
    if record is not None and record.adopt == adopt and signer is not None:
        own = held_parts(fresh)
        before = _rendered_before(live, own, record, (auth, signer), defaults)
        kept = _with_readers(
            {
                name: part
                for name, part in record.parts.items()
                if name in own and own[name] != part and before.get(name) == own[name]
            },
            own,
            record.parts,
        )
    settled = tuple(with_part(m, kept[label(m)], owner) if label(m) in kept else m for m in fresh)
    entry = Record(spec=live["spec"], auth="", adopt=adopt, parts=held_parts(settled))
    return Wanted(
        manifests=(*_recorded(plan, entry, auth, owner), *settled), held=tuple(sorted(kept))
    )


def _with_readers(
    kept: Mapping[str, Mapping[str, Any]],
    own: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Mapping[str, Any]],
) -> dict[str, Mapping[str, Any]]:
    """What may be kept: configurations together with the pods that read them, or neither.

    Templates carry the hash of what they read. Were a configuration held under a new template, its
    pods would be taken for pods that have read the new one.
    """
    left = dict(kept)
    pairs = [(workload, config) for workload in own for config in _read_by(own[workload], own)]
    dropped = True
    while dropped:
        new = {name for name in own if own[name] != before.get(name) and name not in left}
        dropped = False
        for name in {name for pair in pairs if new.intersection(pair) for name in pair}:
            dropped = left.pop(name, None) is not None or dropped
    return left


def _read_by(part: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for volume in (part.get("spec") or {}).get("volumes") or ():
        name = f"ConfigMap {(volume.get('configMap') or {}).get('name')}"
        if name in own:
            yield name


def _recorded(
    plan: Plan, entry: Record, auth: AuthMaterial, owner: OwnerReference
) -> tuple[Manifest, ...]:
    """The record as it fits into a ConfigMap: with the parts, without them, or not at all."""
    for record in (entry, replace(entry, parts={})):
        signed = replace(record, auth=_signature(record, auth))
        manifest = record_manifest(plan, signed)
        if sum(len(text.encode()) for text in manifest["data"].values()) <= _LARGEST_RECORD:
            return (seal(manifest, owner),)
    return ()


def last_good(
    live: Manifest, record: Record | None, auth: AuthMaterial, defaults: Defaults
) -> Wanted | None:
    """What is kept up while the present spec cannot be served; None when nothing is known."""
    if record is None or (plan := plan_of(live, record.spec, defaults)) is None:
        return None
    return wanted({**live, "spec": dict(record.spec)}, plan, record, auth, defaults)


def owner_of(live: Manifest) -> OwnerReference:
    """The KVServing as the controller of its children."""
    metadata = live["metadata"]
    return OwnerReference(
        api_version=meta.API_VERSION, kind=meta.KIND, name=metadata["name"], uid=metadata["uid"]
    )


def _rendered_before(
    live: Manifest,
    own: dict[str, Mapping[str, Any]],
    record: Record,
    auths: tuple[AuthMaterial, AuthMaterial],
    defaults: Defaults,
) -> dict[str, Mapping[str, Any]]:
    """The parts ``own`` of the present spec as this operator renders them for the accepted one.

    `auths`: the present secrets and those of the record. Pods that read a password follow it.
    """
    auth, signer = auths
    if record.spec == live["spec"] and signer == auth:
        return own
    accepted = plan_of(live, record.spec, defaults)
    return {} if accepted is None else held_parts(render(accepted, signer, owner_of(live)))


def _adopt(live: Manifest) -> str:
    annotations = live["metadata"].get("annotations") or {}
    return str(annotations.get(meta.ANNOTATION_ADOPT, ""))
