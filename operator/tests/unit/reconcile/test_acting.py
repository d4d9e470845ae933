"""What is kept up when the present spec cannot be served, and what becomes of a failure in it."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key, resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile.acceptance import wanted
from kvserving_operator.reconcile.acting import Acting, Outcome
from tests.unit.api.builders import make
from tests.unit.stack import AUTH, DEFAULTS, SPLIT, TIER, planned

from .recorder import Object, RecordingClient

SPEC = {**SPLIT, **TIER}
LIVE: Object = make(SPEC, name="x")
LIVE["metadata"] |= {"uid": "uid-1", "generation": 2}
ACCEPTED = wanted(LIVE, planned(SPEC), None, AUTH, DEFAULTS).manifests


def stored(obj: Any) -> Object:
    made: Object = copy.deepcopy(dict(obj))
    uid = f"uid-{obj['kind']} {obj['metadata']['name']}"
    made["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    return made


def named(kind: str, name: str) -> Object:
    return stored(next(o for o in ACCEPTED if (o["kind"], o["metadata"]["name"]) == (kind, name)))


REFUSED = Refusal(faults=())


async def act(
    client: RecordingClient, *children: Object, outcome: Plan | Refusal = REFUSED
) -> Outcome:
    found: dict[paths.Resource, tuple[Object, ...]] = dict.fromkeys(paths.CHILDREN, ())
    for child in children:
        found[resource_of(child)] += (child,)
    observed = Observed(key=Key("default", "x"), uid="uid-1", children=found)
    acting = Acting(cast(ApiClient, client), DEFAULTS)
    return await acting(LIVE, outcome, observed, ())


def everything_but(kind: str, name: str) -> list[Object]:
    left = (o for o in ACCEPTED if (o["kind"], o["metadata"]["name"]) != (kind, name))
    return [stored(o) for o in left]


async def test_a_child_that_is_missing_under_a_refusal_is_made_again() -> None:
    client = RecordingClient()
    outcome = await act(client, *everything_but("Service", "x-decode"))
    assert client.writes == ["Service x-decode"]
    assert outcome.applied.troubles == outcome.applied.retry == ()


@pytest.mark.parametrize("when", ["check", "write"])
async def test_a_repair_that_meets_a_busy_server_is_tried_again(when: str) -> None:
    """It was dropped at the check, until the resync five minutes later."""
    missing = ("StatefulSet", "x-decode") if when == "check" else ("Service", "x-decode")
    client = RecordingClient()
    client.refuse[" ".join(missing)] = errors.ApiError(
        status=429, reason="TooManyRequests", message="", call="patch"
    )
    outcome = await act(client, *everything_but(*missing))
    assert len(outcome.applied.retry) == 1


async def test_what_forbids_a_repair_is_told_and_looked_at_again() -> None:
    theirs = named("Service", "x-decode")
    theirs["metadata"]["ownerReferences"] = []
    client = RecordingClient(theirs)
    outcome = await act(client, *everything_but("Service", "x-decode"))
    assert client.writes == []
    assert [t.reason for t in outcome.applied.troubles] == [Reason.NAME_CONFLICT]


async def test_a_record_that_somebody_else_wrote_brings_nothing_into_being() -> None:
    forged = named("ConfigMap", "x-accepted")
    forged["data"]["accepted.json"] = forged["data"]["accepted.json"].replace(
        "kvserving/operator:1", "evil/image:1"
    )
    client = RecordingClient()
    left = everything_but("ConfigMap", "x-accepted")
    decode = next(o for o in left if o["metadata"]["name"] == "x-decode")
    left = [o for o in left if o is not decode]
    await act(client, forged, *left)
    assert client.writes == []


async def test_nothing_is_begun_beside_what_a_deleted_object_of_our_name_left() -> None:
    """Its Secret would be read by new engines, and be gone a moment later."""
    secret = named("Secret", "x-auth")
    secret["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-deleted-one"
    client = RecordingClient()
    outcome = await act(client, secret, outcome=planned(SPEC))
    assert client.writes == client.dry_runs == []
    assert outcome.applied.waiting == ("Secret x-auth",)
    assert outcome.applied.troubles == ()
