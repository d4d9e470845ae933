"""Promise: a create is one write per child and at most three of status; idling costs none.

Counted in the apiserver's audit log, under the operator's own user.
"""

from __future__ import annotations

import difflib
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from cluster import audit
from conftest import Serving, serve
from self_healing_test import minimal
from stack.install import RELEASE, SYSTEM_NAMESPACE, Testbed

IDLE_SECONDS = 300
SETTLES = 900
"""Seconds after which an object that served is idle in all that is averaged over minutes."""
OPERATOR_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{RELEASE}"


def by_operator(write: audit.Write) -> bool:
    """A stored write of the operator; its dry runs, by which it validates first, store nothing."""
    return write.user == OPERATOR_USER and not write.dry_run


@dataclass(frozen=True)
class Created:
    """An object from nothing to Ready."""

    serving: Serving
    writes: list[audit.Write]
    """The operator's."""
    seconds: float


@pytest.fixture(scope="module")
def created(testbed: Testbed) -> Created:
    mark, began = audit.mark(), time.monotonic()
    kubectl = testbed.namespace("kvs-writes")
    serving = serve(kubectl, minimal("writes"))
    serving.wait_ready()
    seconds = time.monotonic() - began
    return Created(serving, audit.writes_since(mark, where=by_operator), seconds)


def test_create_is_one_write_per_child(created: Created) -> None:
    namespace = created.serving.kubectl.namespace
    children = Counter(
        f"{w.resource}/{w.name}"
        for w in created.writes
        if w.namespace == namespace and w.resource not in {"kvservings", "events"}
    )
    assert len(children) >= 8, children
    assert set(children.values()) == {1}, children


def test_ready_after_at_most_three_status_writes(created: Created) -> None:
    """The first, how far it is after half a minute, Ready; one more where it takes minutes."""
    name = created.serving.name
    status = [w for w in created.writes if w.resource == "kvservings" and w.name == name]
    assert all(w.subresource == "status" for w in status), "the operator wrote outside status"
    slow = sum(created.seconds > told for told in (120, 420))
    assert 1 <= len(status) <= 3 + slow, status


def test_idle_objects_cost_no_writes(
    created: Created, quickstart: Serving, quickstart_pcp: Serving
) -> None:
    objects = (created.serving, quickstart, quickstart_pcp)
    for serving in objects:
        serving.wait_ready()
    writes, deadline = idle_writes(objects), time.monotonic() + SETTLES
    while unwanted(writes) and time.monotonic() < deadline:
        # What was measured under the load before it (u, say) is told once more as it falls.
        writes = idle_writes(objects)
    assert unwanted(writes) == []
    assert [w for w in writes if w.resource == "leases"], "the audit log saw not even the Lease"


def idle_writes(objects: Iterable[Serving]) -> list[audit.Write]:
    """The operator's writes of five minutes, or up to the first that an idle object costs."""
    before = statuses(objects)
    mark, began = audit.mark(), time.monotonic()
    while time.monotonic() < began + IDLE_SECONDS:  # the promise is about a length of time
        time.sleep(5)
        if unwanted(audit.writes_since(mark, where=by_operator)):
            print(f"after {time.monotonic() - began:.0f} s:")
            print(
                *difflib.unified_diff(before, statuses(objects), "before", "after", n=1), sep="\n"
            )
            break
    return audit.writes_since(mark, where=by_operator)


def statuses(objects: Iterable[Serving]) -> list[str]:
    """Line by line, each with its object."""
    return [
        f"{serving.name}: {line}"
        for serving in objects
        for line in json.dumps(serving.get()["status"], indent=1, sort_keys=True).splitlines()
    ]


def unwanted(writes: list[audit.Write]) -> list[audit.Write]:
    """All but those of the Lease."""
    return [w for w in writes if w.resource != "leases"]
