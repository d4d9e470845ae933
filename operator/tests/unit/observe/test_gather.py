"""Reading the children: absent is not unreadable, foreign is not ours."""

from __future__ import annotations

from typing import Any

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.observe.cache import ChildCache
from kvserving_operator.observe.gather import Listing, Observed, Watched, gather

from .pods import pod

KEY = Key("n", "x")


class Recorded:
    """Answers reads from a table and remembers them."""

    def __init__(self, **objects: list[Any]) -> None:
        self.objects = objects
        self.broken: set[Resource] = set()
        self.ailing: set[Resource] = set()
        self.reads: list[tuple[str, str, str]] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> Any:
        self.reads.append(("get", resource.plural, name))
        self._check(resource)
        found = self.objects.get(resource.plural, [])
        return next((o for o in found if o["metadata"]["name"] == name), None)

    async def list(
        self, resource: Resource, namespace: str | None, *, selector: str = "", fresh: bool = False
    ) -> list[Any]:
        self.reads.append(("list", resource.plural, selector))
        self._check(resource)
        return self.objects.get(resource.plural, [])

    def _check(self, resource: Resource) -> None:
        if resource in self.ailing:
            message = "conversion webhook for cert-manager.io/v1alpha2 failed"
            raise errors.ApiError(status=500, reason="", message=message, call="list")
        if resource in self.broken:
            raise errors.ForbiddenError(status=403, reason="Forbidden", message="no", call="list")


def child(kind: str, name: str, owner: str) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True}]
    return {"kind": kind, "metadata": {"name": name, "ownerReferences": references}}


async def read(reader: Recorded, **options: Any) -> Observed:
    return await gather(Listing(reader), KEY, "u", **options)


async def test_one_list_per_kind_and_the_secret_by_its_name() -> None:
    reader = Recorded()
    await read(reader)
    lists = [read for read in reader.reads if read[0] == "list"]
    assert {kind for _, kind, _ in lists} == {
        r.plural for r in (*paths.LISTED_CHILDREN, paths.PODS)
    }
    assert len(lists) == len(paths.LISTED_CHILDREN) + 1
    assert {selector for _, _, selector in lists} == {"kvserving.io/kvserving=x"}
    assert [read for read in reader.reads if read[0] == "get"] == [("get", "secrets", "x-auth")]


async def test_unreadable_is_told_apart_from_absent() -> None:
    reader = Recorded()
    reader.broken = {paths.SERVICES, paths.SECRETS}
    observed = await read(reader)
    assert set(observed.unreadable) == {paths.SERVICES, paths.SECRETS}
    assert paths.SERVICES not in observed.children
    assert observed.children[paths.CONFIGMAPS] == ()


async def test_the_outage_of_another_projects_api_is_not_ours() -> None:
    reader = Recorded()
    reader.ailing = {paths.CERTIFICATES, paths.SERVICES}
    observed = await read(reader, optional=paths.OPTIONAL_CHILDREN)
    assert set(observed.unreadable) == {paths.SERVICES}
    assert observed.silent == {paths.CERTIFICATES}
    assert paths.CERTIFICATES not in observed.children


async def test_only_what_the_object_owns_is_ours() -> None:
    reader = Recorded(
        services=[child("Service", "x", "u"), child("Service", "x-foreign", "somebody")]
    )
    observed = await read(reader)
    assert observed.child(paths.SERVICES, "x") is not None
    assert observed.child(paths.SERVICES, "x-foreign") is None
    assert [m["metadata"]["name"] for m in observed.ours()] == ["x"]


async def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    reader = Recorded(services=[{"metadata": {"name": "x", "ownerReferences": [{"uid": "u"}]}}])
    assert (await read(reader)).child(paths.SERVICES, "x") is None


async def test_pods_come_by_role_in_the_order_of_their_ordinals() -> None:
    names = ["x-decode-10", "x-decode-2", "x-decode-0"]
    reader = Recorded(pods=[pod(name) for name in names] + [pod("x-prefill-0", role="prefill")])
    observed = await read(reader)
    found = [p["metadata"]["name"] for p in observed.pods_of("decode")]
    assert found == ["x-decode-0", "x-decode-2", "x-decode-10"]


async def test_what_the_watches_have_told_is_not_asked_for() -> None:
    reader, cache = Recorded(), ChildCache(paths.WATCHED, ())
    for shelf in cache.shelves:
        shelf.replace([], "1", shelf.mark)
    observed = await gather(Watched(reader, cache), KEY, "u")
    assert reader.reads == [("get", "secrets", "x-auth")]
    assert set(observed.children) == set(paths.CHILDREN)


async def test_a_kind_whose_watch_is_lost_is_listed_and_no_other() -> None:
    reader, cache = Recorded(), ChildCache(paths.WATCHED, ())
    for shelf in cache.shelves:
        shelf.replace([], "1", shelf.mark)
    services = cache.shelf(paths.SERVICES, "n")
    assert services is not None
    services.lost()
    reader.broken = {paths.SERVICES}
    observed = await gather(Watched(reader, cache), KEY, "u")
    assert [kind for verb, kind, _ in reader.reads if verb == "list"] == ["services"]
    assert set(observed.unreadable) == {paths.SERVICES}


async def test_kinds_of_other_projects_are_listed_each_time() -> None:
    reader, cache = Recorded(), ChildCache(paths.WATCHED, ())
    await gather(Watched(reader, cache), KEY, "u", optional=[paths.CERTIFICATES])
    assert ("list", "certificates", "kvserving.io/kvserving=x") in reader.reads
