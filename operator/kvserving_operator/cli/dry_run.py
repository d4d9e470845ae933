"""What a cluster would make of manifests: asked by dry runs, compared by the operator's code."""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvserving_operator.api import meta
from kvserving_operator.cli.changes import Change, change
from kvserving_operator.cli.check import plan_of
from kvserving_operator.cli.cluster import connected, passwords
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.discovery import Discovery
from kvserving_operator.kube.paths import Key
from kvserving_operator.kube.transport import Request
from kvserving_operator.observe.gather import Listing, gather
from kvserving_operator.plan import Defaults, Manifest, Plan, Refusal
from kvserving_operator.reconcile.acceptance import stored_record, wanted
from kvserving_operator.reconcile.children import Children
from kvserving_operator.reconcile.decisions import with_decision
from kvserving_operator.reconcile.planning import planned_of
from kvserving_operator.reconcile.rechecks import by_api

_MANAGER = "kvserving-cli"


@dataclass(slots=True)
class Outcome:
    """Everything that would change, and what could not be found out."""

    changes: list[Change] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, live: Manifest | None, wanted: Manifest | None) -> None:
        """Note a change if it is one."""
        found = change(live, wanted)
        if found is not None:
            self.changes.append(found)


async def compared(
    options: argparse.Namespace, manifests: Sequence[Mapping[str, Any]], known: Defaults
) -> Outcome:
    """The outcome of applying ``manifests``, one after the other."""
    outcome = Outcome()
    async with connected(options) as client:
        for manifest in manifests:
            key = Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            try:
                await _compare(client, key, manifest, known, outcome)
            except errors.RequestError as error:
                outcome.failures.append(f"{key.namespace}/{key.name}: {_explained(error, key)}")
    return outcome


async def _compare(
    client: ApiClient, key: Key, manifest: Mapping[str, Any], known: Defaults, outcome: Outcome
) -> None:
    live = await client.get(paths.KVSERVINGS, *key)
    stored = await _stored(client, key, manifest, live)
    outcome.add(live, stored)
    planned = plan_of(stored, known)
    if isinstance(planned, Refusal):
        outcome.failures += [f"{key.namespace}/{key.name}: {fault}" for fault in planned.faults]
        return
    if planned.suspended:
        outcome.remarks.append(
            f"{key.namespace}/{key.name}: is suspended; the operator would wait with its objects"
        )
    await _compare_children(client, stored, planned, known, outcome)


async def _stored(
    client: ApiClient, key: Key, manifest: Mapping[str, Any], live: Manifest | None
) -> Manifest:
    """The KVServing as the server would store it: its defaults, its rules, its webhooks."""
    wanted: Manifest = {field: value for field, value in manifest.items() if field != "status"}
    if live is not None:
        wanted = _replacing(wanted, live)
    return await client.send(
        Request(
            method="POST" if live is None else "PUT",
            verb="create" if live is None else "update",
            resource=paths.KVSERVINGS,
            namespace=key.namespace,
            name=None if live is None else key.name,
            query={"dryRun": "All", "fieldValidation": "Strict", "fieldManager": _MANAGER},
            body=wanted,
        )
    )


def _replacing(wanted: Manifest, live: Manifest) -> Manifest:
    """The file's spec in the live object; its labels and annotations are added to those there.

    Replicas that the file leaves out and an autoscaler has set through the scale subresource stay:
    applying the file would not touch them either.
    """
    metadata = dict(live["metadata"])
    for kind in ("labels", "annotations"):
        merged = {**metadata.get(kind, {}), **(wanted["metadata"].get(kind) or {})}
        if merged:
            metadata[kind] = merged
    spec = dict(wanted["spec"])
    replicas = (live["spec"].get("prefill") or {}).get("replicas")
    prefill = spec.get("prefill")
    if replicas is not None and _scaled(live) and isinstance(prefill, dict):
        spec["prefill"] = {"replicas": replicas, **prefill}
    return {**live, "metadata": metadata, "spec": spec}


def _scaled(live: Manifest) -> bool:
    entries = live["metadata"].get("managedFields") or []
    return any(entry.get("subresource") == "scale" for entry in entries)


async def _compare_children(
    client: ApiClient, stored: Manifest, planned: Plan, known: Defaults, outcome: Outcome
) -> None:
    key, uid = Key(planned.namespace, planned.name), stored["metadata"]["uid"]
    served = await Discovery(client).served()
    observed = await gather(Listing(client), key, uid, optional=sorted(served, key=str))
    for resource, error in observed.unreadable.items():
        outcome.failures.append(f"{resource} cannot be read: {error}")
    if observed.unreadable:
        return
    # As the operator would: with what the tuner has decided for engines that take it at a start.
    stored = with_decision(stored, observed, time.time())
    again = planned_of(stored, known)
    planned = again if isinstance(again, Plan) else planned
    record = stored_record(observed, key.name)
    children = wanted(stored, planned, record, await passwords(client, key), known)
    manifests, absent = by_api(children.manifests, served)
    outcome.remarks += [
        f"{key.namespace}/{key.name}: {kind} is left out, because the cluster lacks its API"
        for kind in absent
    ]
    operators = Children(client)
    comparison = await operators.compare(observed, manifests)
    outcome.failures += [trouble.message for trouble in comparison.conflicts]
    for item in comparison.changes:
        if item.rendered["metadata"]["name"] == planned.names.accepted:
            continue  # the operator's own note of what the other lines say
        try:
            outcome.add(item.live, await operators.preview(item))
        except errors.RequestError as error:
            outcome.failures.append(f"{item.label}: {_explained(error, key)}")
    for obsolete in comparison.obsolete:
        outcome.add(obsolete, None)


def _explained(error: errors.RequestError, key: Key) -> str:
    if isinstance(error, errors.NotFoundError):
        return (
            f"{error.message}: is the namespace {key.namespace} there, and the CRD "
            f"{meta.CRD_NAME} installed?"
        )
    return error.message if isinstance(error, errors.ApiError) else str(error)
