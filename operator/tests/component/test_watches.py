"""What is known from watches: how little is asked beside them, and that it is never too old."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvserving_operator.kube import paths

from .fault_proxy import FaultProxy
from .harness import (
    Cluster,
    Kubelet,
    OperatorProcess,
    Served,
    example,
    user_kubeconfig,
    wait_for,
)
from .restarts import restarted

KINDS = len(paths.WATCHED) + 1
QUESTIONS = len(paths.OPTIONAL_CHILDREN)
"""GETs of discovery: at most so many in 15 seconds, whatever the number of passes."""


def requests(operator: OperatorProcess) -> Counter[str]:
    """Requests so far, by verb and resource; the Lease and events are left out."""
    counted: Counter[str] = Counter()
    for line in operator.ask("/metrics")[1].splitlines():
        if not line.startswith("kvserving_operator_api_requests_total{"):
            continue
        labels, _, value = line.rpartition(" ")
        verb, resource = (
            labels.split(f'{name}="')[1].split('"')[0] for name in ("verb", "resource")
        )
        if resource not in {"leases", "events"}:
            counted[f"{verb} {resource}"] += int(float(value))
    return counted


def asked_for(operator: OperatorProcess, action: Callable[[], None]) -> Counter[str]:
    before = requests(operator)
    action()
    return requests(operator) - before


def passes(operator: OperatorProcess) -> float:
    return operator.metric("kvserving_operator_passes_total")


def _more_passes(operator: OperatorProcess, before: float) -> Callable[[], bool]:
    return lambda: passes(operator) > before


def touch(cluster: Cluster, operator: OperatorProcess, name: str, times: int) -> None:
    """So many passes over an object, each of them by an event of its own."""
    for number in range(times):
        before = passes(operator)
        note = {"metadata": {"annotations": {"touched": uuid.uuid4().hex}}}
        cluster.patch(paths.KVSERVINGS, name, note)
        wait_for(_more_passes(operator, before), what=f"pass {number}")


def test_a_pass_over_a_settled_object_is_two_reads(served: Served) -> None:
    cluster, operator = served.cluster, served.operator
    cluster.create(example("calm"))
    cluster.settled("calm")
    touch(cluster, operator, "calm", 1)  # what the end of the work has left
    before = passes(operator)
    asked = asked_for(operator, lambda: touch(cluster, operator, "calm", 8))
    done = passes(operator) - before
    assert asked.pop("get kvservings") <= done + 1
    assert asked.pop("get secrets") <= done + 1
    discovery = [f"get {resource.plural}" for resource in paths.OPTIONAL_CHILDREN]
    assert sum(asked.pop(question, 0) for question in discovery) <= 2 * QUESTIONS
    assert asked == {}, "children were read, or something was written"


def test_a_new_object_is_one_look_and_one_write_a_child(served: Served) -> None:
    # Passes that come before a watch has told of the last one's writes list those kinds: how many
    # do is also a matter of how busy the machine is.
    listed = [lists_for_new(served, f"new-{number}") for number in range(3)]
    assert sorted(listed)[1] <= len(paths.WATCHED), listed


def lists_for_new(served: Served, name: str) -> int:
    """LISTs until a new object is settled, whose children were got and written once each."""
    cluster, operator = served.cluster, served.operator

    def create() -> None:
        cluster.create(example(name))
        cluster.settled(name)

    asked = asked_for(operator, create)
    children = cluster.children(name)
    kinds = Counter(name.partition("/")[0] for name in children)
    handed_on = ("statefulsets", "deployments", "networkpolicies")
    for kind, number in kinds.items():
        dry_runs = number if kind in handed_on else 0
        assert asked[f"patch {kind}"] == number + dry_runs, kind
        if kind != "secrets":
            assert asked[f"get {kind}"] == number, kind
    return sum(n for what, n in asked.items() if what.startswith("list "))


@pytest.mark.takes(25)
def test_watches_begin_with_one_list_a_kind_however_many_objects_there_are(
    cluster: Cluster, tmp_path: Path
) -> None:
    names = [f"kvs-{number}" for number in range(6)]
    with restarted(cluster, tmp_path, names) as (operator, mark):
        asked = requests(operator)
        lists = {what: n for what, n in asked.items() if what.startswith("list ")}
        assert lists == {f"list {kind.plural}": 1 for kind in (paths.KVSERVINGS, *paths.WATCHED)}
        assert cluster.writes(mark) == []
        assert operator.unexpected == []


@contextmanager
def settled_behind_proxy(
    cluster: Cluster, folder: Path, *options: str
) -> Iterator[tuple[FaultProxy, OperatorProcess]]:
    with (
        FaultProxy(user_kubeconfig(cluster, "operator")) as proxy,
        Kubelet(cluster),
        OperatorProcess(cluster, folder, server=proxy.url).start(*options) as operator,
    ):
        operator.wait_leading()
        cluster.create(example("x"))
        cluster.settled("x")
        wait_for(lambda: proxy.watches == KINDS, what=f"{KINDS} watches")
        yield proxy, operator
        assert operator.unexpected == []


def test_what_was_just_written_is_known_although_the_watches_are_behind(
    cluster: Cluster, tmp_path: Path
) -> None:
    with settled_behind_proxy(cluster, tmp_path, "--resync-interval=600") as (proxy, operator):
        proxy.hold_watches()
        mark = cluster.mark()
        spec = {"kvCache": {"chunkTokens": 128}, "networkPolicy": {"mode": "Disabled"}}
        cluster.patch(paths.KVSERVINGS, "x", {"spec": spec})
        wait_for(
            lambda: not cluster.list(paths.NETWORK_POLICIES, "x"), what="the change is carried out"
        )
        touch(cluster, operator, "x", 3)
        writes = Counter(
            f"{w.verb} {w.resource}/{w.name}"
            for w in cluster.writes(mark)
            if w.resource not in {"kvservings", "events", "pods"}
        )
        assert writes["patch configmaps/x-lmcache"] == 1
        assert sum(what.startswith("delete networkpolicies/") for what in writes) == 4
        assert set(writes.values()) == {1}, writes
        proxy.release_watches()
        cluster.settled("x")


def test_old_events_told_again_are_no_news(cluster: Cluster, tmp_path: Path) -> None:
    with settled_behind_proxy(cluster, tmp_path, "--resync-interval=600") as (proxy, operator):
        before = cluster.contents("x")
        touch(cluster, operator, "x", 1)
        mark, done = cluster.mark(), passes(operator)
        assert proxy.repeat_watches() == KINDS - 1
        touch(cluster, operator, "x", 2)
        assert passes(operator) - done <= 3, "old events brought passes"
        assert cluster.writes(mark) == []
        assert cluster.contents("x") == before
        cluster.delete(paths.SERVICES, "x")
        wait_for(lambda: cluster.get(paths.SERVICES, "x"), what="the repair")


@pytest.mark.parametrize("end", ["cut", "expired"])
def test_what_happens_between_two_watches_is_found_by_the_list(
    cluster: Cluster, tmp_path: Path, end: str
) -> None:
    """Deleted while nobody watched: no event tells of it, and the passes do not wait for one."""
    with settled_behind_proxy(cluster, tmp_path, "--resync-interval=600") as (proxy, _):
        proxy.hold_watches()
        cluster.delete(paths.SERVICES, "x-decode")
        cluster.patch(paths.CONFIGMAPS, "x-lmcache", {"data": {"lmcache.yaml": "edited"}})
        proxy.tell_watches(410) if end == "expired" else proxy.cut_watches()
        proxy.release_watches()
        wait_for(lambda: cluster.get(paths.SERVICES, "x-decode"), what="the repair of what went")
        wait_for(
            lambda: (
                cluster.must_get(paths.CONFIGMAPS, "x-lmcache")["data"].get("lmcache.yaml")
                != "edited"
            ),
            what="the repair of what was edited",
        )
        wait_for(lambda: proxy.watches == KINDS, what="all watches again")


def test_a_silent_watch_is_healed_by_the_resync(cluster: Cluster, tmp_path: Path) -> None:
    """It stays open and tells nothing: what it missed is found when it makes room for a LIST."""
    with settled_behind_proxy(cluster, tmp_path, "--resync-interval=6") as (proxy, _):
        proxy.hold_watches()
        cluster.delete(paths.SERVICES, "x-decode")
        wait_for(lambda: cluster.get(paths.SERVICES, "x-decode"), what="the repair")
        proxy.release_watches()
