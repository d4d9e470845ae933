"""Fields edited on a live object: the operator writes these children and no others.

Every fourth row of the table; all of them with KVSERVING_TEST_EDITS=all, in three minutes. What a
row says of the rendered objects is tested for all of them in unit/render/test_edits.py.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from cluster.api import ApiError
from kvserving_operator.kube import paths
from tests.unit.render.edits import EDITS, base, edited

from .harness import Cluster, Object, Served, wait_for

pytestmark = pytest.mark.takes(50)

NAME = "x"
RECORD = {f"ConfigMap/{NAME}-accepted"}
STEP = 1 if os.environ.get("KVSERVING_TEST_EDITS") == "all" else 4
OPERATOR = "kvserving-operator"
REPORTED = {"StatefulSet", "Deployment", "PodDisruptionBudget"}
"""Kinds in whose status Kubernetes' own controllers write."""
OPTIONAL = {"HTTPRoute", "PodMonitor", "Certificate"}
"""Kinds whose API this cluster lacks."""


def states(cluster: Cluster) -> dict[str, str]:
    """The resourceVersion of each child."""
    return {
        f"{resource.kind}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for resource in paths.CHILDREN
        if resource.kind not in OPTIONAL
        for item in cluster.list(resource, NAME)
    }


def writers(cluster: Cluster, since: int) -> dict[str, set[str]]:
    """The children that were written, each with who wrote it: also what controllers report."""
    kinds = {resource.plural: resource.kind for resource in paths.CHILDREN}
    found: dict[str, set[str]] = {}
    for write in cluster.plane.audit.writes(since):
        if write.succeeded and write.namespace == cluster.namespace and write.resource in kinds:
            child = f"{kinds[write.resource]}/{write.name}"
            found.setdefault(child, set()).add(write.user_agent)
    return found


def explained(cluster: Cluster, since: int, changed: set[str]) -> dict[str, set[str]]:
    """The writers, once the log tells of every change: it is written after the answer."""
    found: dict[str, set[str]] = {}

    def told() -> bool:
        nonlocal found
        found = writers(cluster, since)
        return changed <= found.keys()

    wait_for(told, what="a write for each change", more=lambda: str(changed))
    return found


def put(cluster: Cluster, spec: dict[str, Any]) -> Object:
    """Replace the spec; again when the operator's status came in between."""
    path = paths.KVSERVINGS.path(cluster.namespace, NAME)
    while True:
        body = {**cluster.must_get(paths.KVSERVINGS, NAME), "spec": spec}
        try:
            stored: Object = json.loads(cluster.plane.api.request("PUT", path, body))
        except ApiError as error:
            if error.status == 409:
                continue
            raise
        return stored


def observed(cluster: Cluster, generation: int) -> None:
    wait_for(
        lambda: cluster.status(NAME).get("observedGeneration") == generation,
        what=f"generation {generation} observed",
        more=lambda: str(cluster.status(NAME)),
    )


def test_an_edited_field_changes_exactly_its_children(served: Served) -> None:
    cluster = served.cluster
    obj = base(NAME)
    obj["metadata"] = {"name": NAME}
    cluster.create(obj)
    cluster.settled(NAME)
    last: frozenset[str] = frozenset()
    mark = cluster.mark()
    before = states(cluster)
    wrong: list[str] = []
    for field, edit in list(EDITS.items())[::STEP]:
        spec = edited(edit.changes)["spec"]
        try:
            stored = put(cluster, spec)
        except ApiError as error:
            assert edit.refused and error.status == 422, f"{field}: {error}"  # noqa: PT017, PT018
            continue
        observed(cluster, stored["metadata"]["generation"])
        since, mark = mark, cluster.mark()
        after = states(cluster)
        changed = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
        before = after
        by = explained(cluster, since, changed)
        reported = {n for n, agents in by.items() if agents != {OPERATOR}}
        assert {n.partition("/")[0] for n in reported} <= REPORTED, by
        ours = {child for child, agents in by.items() if OPERATOR in agents}
        ours -= RECORD
        if edit.refused:
            allowed = required = frozenset[str]()
        else:
            # From the edit before to this one: what one of them alone touches must change.
            allowed, required, last = last | edit.children, last ^ edit.children, edit.children
        required = {n for n in required if n.partition("/")[0] not in OPTIONAL}
        if not required <= ours <= allowed:
            wrong.append(f"{field}: {sorted(ours)}, wanted {sorted(allowed)}")
    assert wrong == []
