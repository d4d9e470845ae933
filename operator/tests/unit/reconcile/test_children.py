"""Comparing and writing children: what is written, in which order, and what forbids it."""

from __future__ import annotations

import copy
import re
from typing import Any, cast

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key, resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.reconcile.changes import Comparison
from kvserving_operator.reconcile.children import Children
from kvserving_operator.reconcile.contests import BURST
from tests.unit.stack import SPLIT, TIER, rendered

from .recorder import Object, RecordingClient

RENDERED = rendered({**SPLIT, **TIER})
UID = "uid-1"  # the owner in tests.unit.stack


def label(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def live(obj: Object, **metadata: Any) -> Object:
    """The object as it would be stored."""
    stored = copy.deepcopy(obj)
    stored["metadata"] |= {"uid": f"uid-{label(obj)}", "resourceVersion": "1"} | metadata
    return stored


def observed(*objects: Object) -> Observed:
    children: dict[paths.Resource, tuple[Object, ...]] = dict.fromkeys(paths.CHILDREN, ())
    for obj in objects:
        children[resource_of(obj)] += (obj,)
    return Observed(key=Key("default", "x"), uid=UID, children=children)


def subject(client: RecordingClient) -> Children:
    return Children(cast(ApiClient, client))


async def compare(client: RecordingClient, *objects: Object, **more: Any) -> Comparison:
    wanted = more.get("wanted", RENDERED)
    return await subject(client).compare(observed(*objects), wanted)


async def test_settled_children_need_no_write_and_no_extra_read() -> None:
    client = RecordingClient()
    comparison = await compare(client, *(live(o) for o in RENDERED))
    assert comparison == Comparison(changes=(), obsolete=(), conflicts=())
    assert client.reads == []


async def test_absent_children_are_looked_for_by_name_before_they_are_made() -> None:
    client = RecordingClient()
    comparison = await compare(client)
    assert {c.label for c in comparison.changes} == {label(o) for o in RENDERED}
    by_name = {label(o) for o in RENDERED if o["kind"] != "Secret"}
    assert set(client.reads) == by_name, "the Secret was read by name already"


async def test_a_child_that_the_cache_did_not_show_is_not_written_again() -> None:
    client = RecordingClient(*(live(o) for o in RENDERED))
    comparison = await compare(client, *(live(o) for o in RENDERED if o["kind"] == "Secret"))
    assert comparison.changes == ()


async def test_foreign_objects_are_conflicts() -> None:
    foreign = live(RENDERED[-1], ownerReferences=[])
    comparison = await compare(RecordingClient(foreign), *(live(o) for o in RENDERED[:-1]))
    assert [t.reason for t in comparison.conflicts] == [Reason.NAME_CONFLICT]
    assert comparison.conflicts[0].stalled
    assert label(foreign) in comparison.conflicts[0].message
    assert comparison.changes == ()


async def test_what_a_deleted_object_of_our_name_left_is_waited_for() -> None:
    """kubectl replace --force: garbage collection comes a moment later. That is no conflict."""
    ours = [live(o) for o in RENDERED]
    for child in ours[:2]:
        child["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-deleted-one"
    client = RecordingClient(*ours[:2])
    comparison = await compare(client, *ours)
    assert comparison.conflicts == comparison.changes == ()
    assert set(comparison.inherited) == {label(o) for o in RENDERED[:2]}


async def test_a_foreign_secret_is_a_conflict_and_is_not_read_twice() -> None:
    secret = next(o for o in RENDERED if o["kind"] == "Secret")
    client = RecordingClient()
    foreign = live(secret, ownerReferences=[{"uid": "other", "controller": True}])
    others = [live(o) for o in RENDERED if o["kind"] != "Secret"]
    comparison = await compare(client, foreign, *others)
    assert len(comparison.conflicts) == 1
    assert client.reads == []


async def test_what_is_not_wanted_any_more_is_obsolete() -> None:
    extra = live(RENDERED[0], name="x-old")
    leaving = live(RENDERED[0], name="x-older", deletionTimestamp="now")
    foreign = live(RENDERED[0], name="x-foreign", ownerReferences=[])
    comparison = await compare(
        RecordingClient(), extra, leaving, foreign, *(live(o) for o in RENDERED)
    )
    assert [o["metadata"]["name"] for o in comparison.obsolete] == ["x-old"]


async def test_a_child_that_is_being_deleted_is_waited_for() -> None:
    leaving = live(RENDERED[-1], deletionTimestamp="now", annotations={})
    client = RecordingClient()
    children = subject(client)
    others = (live(o) for o in RENDERED[:-1])
    comparison = await children.compare(observed(leaving, *others), RENDERED)
    assert comparison.changes == ()
    applied = await children.write(comparison)
    assert applied.waiting == (label(leaving),)
    assert applied.unfinished, "its successor is not made: this is not the end"


async def test_writes_come_in_the_order_in_which_others_need_them() -> None:
    client = RecordingClient()
    children = subject(client)
    applied = await children.write(await children.compare(observed(), RENDERED))
    assert len(applied.written) == len(RENDERED)
    assert len(client.writes) == len(set(client.writes)) == len(RENDERED)
    position = {name: client.writes.index(name) for name in client.writes}
    for chain in (
        ["Secret x-auth", "ConfigMap x-valkey", "StatefulSet x-valkey", "StatefulSet x-prefill"],
        ["Secret x-auth", "NetworkPolicy x-prefill", "StatefulSet x-prefill"],
        ["Role x-router", "RoleBinding x-router", "Deployment x-router"],
        ["ServiceAccount x-router", "Deployment x-router"],
        ["Service x-valkey", "StatefulSet x-valkey"],
    ):
        order = [position[name] for name in chain]
        assert order == sorted(order), chain


async def test_what_does_not_need_each_other_is_written_at_the_same_time() -> None:
    """A new object waits for a few answers in turn, not for one of each child."""
    client = RecordingClient()
    children = subject(client)
    await children.write(await children.compare(observed(), RENDERED))
    assert client.rounds == 4, "five with the record"


async def test_new_children_must_meet_nobody_and_old_ones_must_be_the_ones_read() -> None:
    client = RecordingClient()
    children = subject(client)
    edited = live(RENDERED[0], labels={})
    await children.write(await children.compare(observed(edited), RENDERED))
    changed, new = label(RENDERED[0]), label(RENDERED[1])
    assert client.forced[changed]
    assert client.bodies[changed]["metadata"]["uid"] == edited["metadata"]["uid"]
    assert not client.forced[new]
    assert "uid" not in client.bodies[new]["metadata"]


async def test_only_workloads_are_dry_run_and_only_changed_ones() -> None:
    client = RecordingClient()
    children = subject(client)
    stale = [o for o in RENDERED if label(o) == "StatefulSet x-decode"]
    rest = [live(o) for o in RENDERED if o not in stale]
    await children.check(await children.compare(observed(*rest), RENDERED))
    assert client.dry_runs == ["StatefulSet x-decode"]
    assert client.writes == []


def refusing(label_: str, error: errors.RequestError) -> RecordingClient:
    client = RecordingClient()
    client.refuse[label_] = error
    return client


def api_error(kind: type[errors.ApiError], status: int, message: str = "no") -> errors.ApiError:
    return kind(status=status, reason="R", message=message, call="patch")


@pytest.mark.parametrize(
    ("error", "reason", "stalled"),
    [
        (api_error(errors.InvalidError, 422), Reason.REJECTED_BY_SERVER, True),
        (api_error(errors.ForbiddenError, 403, "exceeded quota"), Reason.APPLY_FAILED, True),
        (api_error(errors.ApiError, 500, "webhook"), Reason.APPLY_FAILED, False),
    ],
)
async def test_a_refused_write_is_told_and_ends_the_writing(
    error: errors.RequestError, reason: Reason, *, stalled: bool
) -> None:
    client = refusing("Service x", error)
    children = subject(client)
    applied = await children.write(await children.compare(observed(), RENDERED))
    assert [(t.reason, t.stalled) for t in applied.troubles] == [(reason, stalled)]
    assert "Service x" in applied.troubles[0].message
    assert not [name for name in client.writes if name.startswith("StatefulSet")]
    assert "Service x-decode" in client.writes, "the stage was finished"


@pytest.mark.parametrize(
    "error",
    [
        api_error(errors.ConflictError, 409),
        api_error(errors.ApiError, 503),
        api_error(errors.ForbiddenError, 403, "unable to create: it is being terminated"),
        errors.UnreachableError(call="patch", cause=TimeoutError()),
    ],
)
async def test_what_a_later_pass_may_not_meet_is_only_retried(error: errors.RequestError) -> None:
    client = refusing("Service x", error)
    children = subject(client)
    applied = await children.write(await children.compare(observed(), RENDERED))
    assert applied.troubles == ()
    assert len(applied.retry) == 1


async def test_a_closed_fence_ends_everything() -> None:
    client = RecordingClient()
    client.refuse["Secret x-auth"] = cast(errors.RequestError, errors.FencedError())
    children = subject(client)
    with pytest.raises(errors.FencedError):
        await children.write(await children.compare(observed(), RENDERED))
    assert client.writes == ["Secret x-auth"]


async def test_pruning_comes_last_and_names_the_object_it_means() -> None:
    client = RecordingClient()
    children = subject(client)
    extra = live(RENDERED[0], name="x-old")
    applied = await children.write(await children.compare(observed(extra), RENDERED))
    assert client.writes[-1] == f"delete {label(extra)} {extra['metadata']['uid']}"
    assert applied.removed == (label(extra),)


async def test_what_the_server_stores_differently_is_not_written_every_pass() -> None:
    client = RecordingClient()
    client.stored_differently = {"data": {"mutated": "by a webhook"}}
    children = subject(client)
    config = next(o for o in RENDERED if o["kind"] == "ConfigMap")
    edited = live(config, labels={})
    await children.write(await children.compare(observed(edited), [config]))
    assert client.writes == [label(config)]
    mutated = live(config, resourceVersion="101") | client.stored_differently
    assert (await children.compare(observed(mutated), [config])).changes == ()
    touched = live(config, resourceVersion="102") | client.stored_differently
    assert len((await children.compare(observed(touched), [config])).changes) == 1


async def test_a_webhooks_image_is_not_fought_over_whenever_a_pod_gets_ready() -> None:
    """Policy engines rewrite registries; the status of a StatefulSet changes all the time."""
    client = RecordingClient()
    rendered_set = next(o for o in RENDERED if label(o) == "StatefulSet x-decode")
    spec = copy.deepcopy(rendered_set["spec"])
    spec["template"]["spec"]["containers"][0]["image"] = "mirror.example/engine:1"
    client.stored_differently = {"spec": spec}
    children = subject(client)
    await children.write(await children.compare(observed(), [rendered_set]))
    assert client.writes == [label(rendered_set)]

    async def changes(**metadata: Any) -> int:
        mutated = live(rendered_set, **metadata) | client.stored_differently
        return len((await children.compare(observed(mutated), [rendered_set])).changes)

    assert await changes(generation=1, resourceVersion="101") == 0, "made a moment ago"
    assert await changes(generation=1, resourceVersion="250") == 0, "its status changed"
    assert await changes(generation=2, resourceVersion="251") == 1, "somebody changed its spec"
    assert await changes(generation=1, resourceVersion="252", annotations={}) == 1


async def test_a_controller_that_insists_is_not_raced() -> None:
    client = RecordingClient()
    children = subject(client)
    scaled = live(next(o for o in RENDERED if label(o) == "Deployment x-router"))
    wanted = [next(o for o in RENDERED if label(o) == "Deployment x-router")]
    scaled["spec"]["replicas"] = 7
    for _ in range(50):
        comparison = await children.compare(observed(scaled), wanted)
        applied = await children.write(comparison)
    assert len(client.writes) == BURST + 1
    assert comparison.changes == ()
    assert applied.contested == ("Deployment x-router",)
    assert not applied.unfinished, "a fight over one child holds up nothing else"


async def test_a_frozen_field_is_changed_by_making_the_object_again_around_its_pods() -> None:
    client = RecordingClient()
    objects = [live(o) for o in RENDERED]
    old = next(o for o in objects if label(o) == "StatefulSet x-decode")
    old["spec"]["podManagementPolicy"] = "OrderedReady"
    children = subject(client)
    comparison = await children.compare(observed(*objects), RENDERED)
    assert (await children.check(comparison)).troubles == ()
    (probe,) = client.dry_runs
    assert re.fullmatch("StatefulSet x-[0-9a-f]{7}", probe), "a name that nobody has"
    assert client.bodies[probe]["spec"]["podManagementPolicy"] == "Parallel"
    applied = await children.write(comparison)
    assert client.writes == ["orphan StatefulSet x-decode uid-StatefulSet x-decode"]
    assert applied.troubles == ()
    assert applied.waiting == ("StatefulSet x-decode",)


async def test_volume_claims_that_are_not_wanted_any_more_are_a_frozen_change() -> None:
    client = RecordingClient()
    objects = [live(o) for o in RENDERED]
    old = next(o for o in objects if label(o) == "StatefulSet x-valkey")
    old["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    old["metadata"]["annotations"]["kvserving.io/render-hash"] = "another"
    await subject(client).write(await compare(client, *objects))
    assert client.writes == ["orphan StatefulSet x-valkey uid-StatefulSet x-valkey"]
