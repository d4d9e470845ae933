"""Fields edited on a live object: these children change, all others stay untouched.

Every fourth row of the table; all of them with KVSERVING_TEST_EDITS=all, in three minutes. What a
row says of the rendered objects is tested for all of them in unit/render/test_edits.py.
"""

from __future__ import annotations

import json
import os
from typing import Any

from cluster.api import ApiError
from kvserving_operator.kube import paths
from tests.unit.render.edits import EDITS, base, edited

from .harness import Cluster, Object, Served, wait_for

NAME = "x"
STEP = 1 if os.environ.get("KVSERVING_TEST_EDITS") == "all" else 4
OPTIONAL = {"HTTPRoute", "PodMonitor", "Certificate"}
"""Kinds whose API this cluster lacks."""


def states(cluster: Cluster) -> dict[str, str]:
    """Of each child something that changes with what is asked of it, not with what it reports."""
    return {
        f"{resource.kind}/{item['metadata']['name']}": str(
            item["metadata"].get("generation") or item["metadata"]["resourceVersion"]
        )
        + item["metadata"]["uid"]
        for resource in paths.CHILDREN
        if resource.kind not in OPTIONAL
        for item in cluster.list(resource, NAME)
    }


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
        after = states(cluster)
        changed = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
        before = after
        changed -= {f"ConfigMap/{NAME}-accepted"}
        if edit.refused:
            allowed = required = frozenset[str]()
        else:
            # From the edit before to this one: what one of them alone touches must change.
            allowed, required, last = last | edit.children, last ^ edit.children, edit.children
        required = {n for n in required if n.partition("/")[0] not in OPTIONAL}
        if not required <= changed <= allowed:
            wrong.append(f"{field}: {sorted(changed)}, wanted {sorted(allowed)}")
    assert wrong == []
