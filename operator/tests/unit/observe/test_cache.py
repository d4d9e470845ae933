"""The cache of children: never older than what we wrote, complete once all is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.cache import ChildCache, Shelf

KEY, OTHER = Key("n", "x"), Key("n", "y")

Object = dict[str, Any]


def service(name: str, version: int, *, owner: str = "x", uid: str = "", **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "n",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {"kvserving.io/kvserving": owner},
        }
        | metadata,
    }


def bookmark(version: int) -> Object:
    return {"kind": "Service", "metadata": {"resourceVersion": str(version)}}


def watched(*items: Object, version: int = 10) -> Shelf:
    shelf = Shelf(paths.SERVICES, None)
    shelf.replace(items, str(version), shelf.mark)
    return shelf


def names(shelf: Shelf, key: Key = KEY) -> list[str] | None:
    found = shelf.owned(key)
    return None if found is None else [m["metadata"]["name"] for m in found]


def test_nothing_is_answered_before_a_list_and_after_the_end_of_the_watch() -> None:
    shelf = Shelf(paths.SERVICES, None)
    assert shelf.owned(KEY) is None
    shelf.replace([service("b", 3), service("a", 4)], "10", shelf.mark)
    assert names(shelf) == ["a", "b"]
    assert names(shelf, OTHER) == []
    shelf.lost()
    assert shelf.owned(KEY) is None


def test_events_wake_their_owner_once() -> None:
    shelf = watched()
    assert shelf.take("ADDED", service("a", 11)) == {KEY}
    assert shelf.take("MODIFIED", service("a", 12)) == {KEY}
    assert shelf.take("DELETED", service("a", 13)) == {KEY}
    assert names(shelf) == []
    assert shelf.take("BOOKMARK", bookmark(20)) == set()
    assert shelf.seen == 20


def test_old_events_told_again_change_nothing() -> None:
    shelf = watched(service("a", 9), version=10)
    assert shelf.take("DELETED", service("a", 10)) == set()
    assert shelf.take("ADDED", service("ghost", 8)) == set()
    assert names(shelf) == ["a"]
    assert shelf.take("MODIFIED", service("a", 11, deletionTimestamp="now")) == {KEY}
    assert shelf.take("MODIFIED", service("a", 9)) == set()
    assert shelf.owned(KEY) == (service("a", 11, deletionTimestamp="now"),)


def test_what_nobody_reads_is_kept_and_wakes_nobody() -> None:
    shelf = Shelf(paths.STATEFULSETS, None)
    sts = service("a", 5, generation=1) | {"kind": "StatefulSet", "status": {"replicas": 1}}
    shelf.replace([sts], "10", shelf.mark)
    noise = service("a", 11, generation=1) | {"kind": "StatefulSet"}
    assert (
        shelf.take("MODIFIED", noise | {"status": {"replicas": 1, "currentReplicas": 1}}) == set()
    )
    found = shelf.owned(KEY)
    assert found is not None
    assert found[0]["metadata"]["resourceVersion"] == "11"


def test_a_list_wakes_those_whose_objects_came_went_or_changed_while_nobody_watched() -> None:
    shelf = watched(service("a", 1), service("b", 2, owner="y"), service("c", 3, owner="z"))
    shelf.lost()
    items = [service("a", 1), service("b", 12, owner="y"), service("d", 13, owner="v")]
    woken = shelf.replace(items, "20", shelf.mark)
    assert woken == {OTHER, Key("n", "z"), Key("n", "v")}
    assert names(shelf, Key("n", "z")) == []


def test_an_object_that_changes_its_owner_wakes_both() -> None:
    shelf = watched(service("a", 1))
    assert shelf.take("MODIFIED", service("a", 11, owner="y")) == {KEY, OTHER}
    assert names(shelf) == []
    assert names(shelf, OTHER) == ["a"]
    assert shelf.replace([service("a", 12)], "20", shelf.mark) == {KEY, OTHER}


def test_after_a_write_it_answers_only_when_the_watch_has_seen_it() -> None:
    shelf = watched(service("a", 9))
    shelf.applying(KEY, "a")
    assert shelf.owned(KEY) is None
    shelf.applied(KEY, service("a", 12))
    assert shelf.owned(KEY) is None
    assert names(shelf, OTHER) == [], "others are not concerned"
    shelf.take("MODIFIED", service("b", 11))
    assert shelf.owned(KEY) is None
    shelf.take("MODIFIED", service("a", 12))
    assert names(shelf) == ["a", "b"]


def test_each_of_several_writes_at_once_is_waited_for() -> None:
    shelf = watched()
    for name in ("a", "b"):
        shelf.applying(KEY, name)
    shelf.applied(KEY, service("a", 11))
    shelf.take("ADDED", service("a", 11))
    assert shelf.owned(KEY) is None, "the answer to the other write was lost"
    shelf.listed(KEY, [service("a", 11), service("b", 12)])
    assert shelf.owned(KEY) is None, "a LIST has shown more than the watch"
    shelf.take("ADDED", service("b", 12))
    assert names(shelf) == ["a", "b"]


def test_a_write_that_changed_nothing_is_not_waited_for() -> None:
    shelf = watched(service("a", 9))
    shelf.applying(KEY, "a")
    shelf.applied(KEY, service("a", 9))
    assert names(shelf) == ["a"]


def test_what_was_deleted_is_not_shown_alive() -> None:
    shelf = watched(service("a", 9), service("b", 9))
    shelf.deleting("n", "a", "uid-a")
    assert shelf.owned(KEY) is None
    shelf.deleted("n", "a", "uid-a")
    assert shelf.owned(KEY) is None
    shelf.take("MODIFIED", service("a", 11, deletionTimestamp="now"))
    assert names(shelf) == ["a", "b"], "it goes, and says so"
    shelf.take("DELETED", service("a", 12))
    shelf.take("ADDED", service("a", 13, uid="another"))
    assert names(shelf) == ["a", "b"]


def test_a_lost_write_of_what_is_gone_since_is_waited_for() -> None:
    shelf = watched(service("a", 9))
    shelf.applying(KEY, "a")  # stored as 11, deleted by somebody as 12, the answer is lost
    shelf.failed(KEY, "a")
    shelf.listed(KEY, [])
    assert shelf.owned(KEY) is None, "the shelf still holds version 9"
    shelf.take("MODIFIED", service("a", 11))
    shelf.take("DELETED", service("a", 12))
    shelf.listed(KEY, [])
    assert names(shelf) == []


def test_the_predecessor_of_what_was_deleted_is_not_shown() -> None:
    shelf = watched(service("a", 9, uid="first"))
    shelf.deleting("n", "a", "second")
    shelf.deleted("n", "a", "second")
    assert shelf.owned(KEY) is None
    shelf.take("DELETED", service("a", 11, uid="first"))
    shelf.take("ADDED", service("a", 12, uid="second"))
    assert shelf.owned(KEY) is None
    shelf.take("DELETED", service("a", 13, uid="second"))
    assert names(shelf) == []


def test_a_list_that_began_before_a_write_ended_proves_nothing_about_it() -> None:
    shelf = watched(service("a", 9), service("b", 9))
    mark = shelf.mark
    shelf.applying(KEY, "a")
    shelf.applied(KEY, service("a", 15))
    shelf.deleting("n", "b", "uid-b")
    shelf.deleted("n", "b", "uid-b")
    shelf.replace([service("a", 9), service("b", 9)], "14", mark)
    assert shelf.owned(KEY) is None
    shelf.replace([service("a", 15)], "16", shelf.mark)
    assert names(shelf) == ["a"]


def test_a_list_that_shows_less_than_a_pass_has_seen_proves_nothing() -> None:
    shelf = watched(service("a", 9))
    shelf.applying(KEY, "a")  # the answer is lost
    mark = shelf.mark
    shelf.listed(KEY, [service("a", 15)])
    shelf.replace([service("a", 9)], "14", mark)
    assert shelf.owned(KEY) is None
    shelf.take("MODIFIED", service("a", 15))
    assert names(shelf) == ["a"]


def test_a_list_that_began_after_a_write_failed_ends_the_wait_for_it() -> None:
    shelf = watched(service("a", 9))
    shelf.applying(KEY, "a")
    mark = shelf.mark
    shelf.failed(KEY, "a")
    assert shelf.owned(KEY) is None, "it may be stored all the same"
    shelf.replace([service("a", 9)], "14", mark)
    assert shelf.owned(KEY) is None
    shelf.replace([service("a", 9)], "14", shelf.mark)
    assert names(shelf) == ["a"]


def test_nothing_is_remembered_of_writes_that_failed_for_those_who_are_gone() -> None:
    shelf = watched()
    for number in range(100):
        shelf.applying(Key(f"gone-{number}", "x"), "a")
        shelf.failed(Key(f"gone-{number}", "x"), "a")
    shelf.replace([], "20", shelf.mark)
    assert not shelf._written


def test_a_list_ends_the_wait_for_versions_that_a_restored_etcd_will_not_reach() -> None:
    shelf = watched()
    shelf.applying(KEY, "a")
    shelf.applied(KEY, service("a", 1000))
    shelf.replace([service("a", 5)], "6", shelf.mark)
    assert names(shelf) == ["a"]


def test_versions_that_are_no_numbers_mean_that_everything_is_asked_for() -> None:
    shelf = Shelf(paths.SERVICES, None)
    odd = service("a", 0, resourceVersion="abc")
    with pytest.raises(ValueError, match="abc"):
        shelf.replace([odd], "abc", shelf.mark)
    shelf.lost()
    shelf.listed(KEY, [odd])
    assert shelf.owned(KEY) is None


def test_shelves_are_by_kind_and_namespace() -> None:
    everywhere = ChildCache([paths.SERVICES, paths.PODS], ())
    assert [s.namespace for s in everywhere.shelves] == [None, None]
    assert everywhere.shelf(paths.SERVICES, "n") is everywhere.shelves[0]
    assert everywhere.shelf(paths.SECRETS, "n") is None
    some = ChildCache([paths.SERVICES], ("n", "m"))
    assert some.shelf(paths.SERVICES, "n") is not some.shelf(paths.SERVICES, "m")
    assert some.shelf(paths.SERVICES, "elsewhere") is None


def test_the_cache_sorts_writes_to_their_shelves() -> None:
    cache = ChildCache([paths.SERVICES, paths.PODS], ())
    for shelf in cache.shelves:
        shelf.replace([service("a", 1)] if shelf.resource is paths.SERVICES else [], "1", 0)
    cache.applying(service("a", 1))
    services, pods = cache.shelves
    assert services.owned(KEY) is None
    assert pods.owned(KEY) == ()
    cache.applied(service("a", 1))
    assert names(services) == ["a"]
    cache.deleting(paths.SERVICES, "n", "a", "uid-a")
    cache.deleted(paths.SERVICES, "n", "a", "uid-a")
    assert services.owned(KEY) is None
    cache.deleting(paths.SECRETS, "n", "s", "uid-of-what-is-not-watched")


NAMES = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from(["x", "y"])


class Told(RuleBasedStateMachine):
    """A server, a watch that lags and breaks, and an operator that writes, in any order.

    Whatever the shelf answers for a KVServing includes all that was written for it by us; once the
    watch has told all, the shelf shows what the server holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Object] = {}
        self.history: list[tuple[str, Object]] = []
        self.version = 0
        self.told = 0
        self.ours: dict[tuple[str, str], int | None] = {}
        self.shelf = Shelf(paths.SERVICES, None)
        self.listing: tuple[list[Object], str, int, int] | None = None

    def write(self, name: str, owner: str) -> Object:
        self.version += 1
        before = self.stored.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        self.stored[name] = service(name, self.version, owner=owner, uid=uid)
        self.history.append(("MODIFIED" if before else "ADDED", self.stored[name]))
        return self.stored[name]

    def remove(self, name: str) -> str:
        self.version += 1
        gone = self.stored.pop(name)
        last = service(
            name,
            self.version,
            owner=gone["metadata"]["labels"]["kvserving.io/kvserving"],
            uid=gone["metadata"]["uid"],
        )
        self.history.append(("DELETED", last))
        return str(gone["metadata"]["uid"])

    @rule(name=NAMES, owner=OWNERS)
    def somebody_writes(self, name: str, owner: str) -> None:
        self.write(name, owner)

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        if name in self.stored:
            self.remove(name)

    @rule(name=NAMES, owner=OWNERS, answered=st.booleans(), done=st.booleans(), told=st.booleans())
    def we_write(self, name: str, owner: str, *, answered: bool, done: bool, told: bool) -> None:
        key = Key("n", owner)
        self.shelf.applying(key, name)
        if answered or done:
            stored = self.write(name, owner)
            self.ours[owner, name] = self.version
            if answered:
                self.shelf.applied(key, stored)
                return
        if told:
            self.shelf.failed(key, name)

    @rule(name=NAMES)
    def we_delete(self, name: str) -> None:
        if name not in self.stored:
            return
        owner = self.stored[name]["metadata"]["labels"]["kvserving.io/kvserving"]
        self.shelf.deleting("n", name, self.stored[name]["metadata"]["uid"])
        uid = self.remove(name)
        self.shelf.deleted("n", name, uid)
        self.ours[owner, name] = self.version

    @rule()
    def the_watch_tells(self) -> None:
        # A watch that lists reads nothing beside it (runtime/watches.py).
        if self.listing is None and self.shelf.watched and self.told < len(self.history):
            self.shelf.take(*self.history[self.told])
            self.told += 1

    @rule(back=st.integers(1, 5))
    def the_watch_repeats_itself(self, back: int) -> None:
        if self.shelf.watched:
            for event in self.history[max(0, self.told - back) : self.told]:
                assert self.shelf.take(*event) == set()

    @rule()
    def the_watch_breaks(self) -> None:
        self.shelf.lost()

    @rule()
    def a_list_begins(self) -> None:
        held = list(self.stored.values())
        self.listing = (held, str(self.version), self.shelf.mark, len(self.history))

    @rule()
    def it_is_listed_again(self) -> None:
        if self.listing is None:
            self.a_list_begins()
        assert self.listing is not None
        *shown, self.told = self.listing
        self.shelf.replace(*shown)
        self.listing = None

    @rule(owner=OWNERS)
    def a_pass_reads(self, owner: str) -> None:
        key = Key("n", owner)
        if self.shelf.owned(key) is None:
            self.shelf.listed(key, self.of(owner))

    def of(self, owner: str) -> list[Object]:
        label = "kvserving.io/kvserving"
        return [o for o in self.stored.values() if o["metadata"]["labels"][label] == owner]

    @invariant()
    def no_answer_is_older_than_our_writes(self) -> None:
        for owner in ("x", "y"):
            answer = self.shelf.owned(Key("n", owner))
            if answer is None:
                continue
            shown = {m["metadata"]["name"]: int(m["metadata"]["resourceVersion"]) for m in answer}
            for (whose, name), written in self.ours.items():
                assert whose != owner or written is None or shown.get(name, 1 << 62) >= written

    @invariant()
    def all_told_is_all_known(self) -> None:
        if self.shelf.watched and self.told == len(self.history):
            for owner in ("x", "y"):
                answer = self.shelf.owned(Key("n", owner))
                wanted = sorted(self.of(owner), key=lambda o: o["metadata"]["name"])
                assert answer is None or list(answer) == wanted


TestTold = Told.TestCase
TestTold.settings = settings(stateful_step_count=30, deadline=None)
