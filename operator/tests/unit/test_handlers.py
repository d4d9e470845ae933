"""Watch events become keys; noise does not."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

from kvserving_operator.handlers import EndlessBackoff, WatchFilter
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key
from tests.unit.observe.pods import pod, statefulset


def labelled(obj: Any) -> Any:
    result = copy.deepcopy(obj)
    result["metadata"] |= {"namespace": "n", "labels": {"kvserving.io/kvserving": "x"}}
    return result


CHILD = labelled(statefulset())
CR = {"metadata": {"name": "x", "namespace": "n", "uid": "u", "generation": 1}}
KEY = Key("n", "x")


def test_objects_wake_their_owner() -> None:
    watch = WatchFilter()
    assert watch.key_of(paths.KVSERVINGS, "ADDED", CR) == KEY
    assert watch.key_of(paths.STATEFULSETS, "ADDED", CHILD) == KEY
    assert watch.key_of(paths.PODS, None, pod("x-0")) == KEY


def test_objects_without_the_label_are_nobodys() -> None:
    assert WatchFilter().key_of(paths.STATEFULSETS, "ADDED", statefulset() | {
        "metadata": statefulset()["metadata"] | {"namespace": "n"}
    }) is None  # fmt: skip


def test_an_event_that_changes_nothing_we_read_is_dropped() -> None:
    watch = WatchFilter()
    watch.key_of(paths.STATEFULSETS, "ADDED", CHILD)
    noise = copy.deepcopy(CHILD)
    noise["status"]["collisionCount"] = 3
    assert watch.key_of(paths.STATEFULSETS, "MODIFIED", noise) is None
    noise["metadata"]["generation"] = 2
    assert watch.key_of(paths.STATEFULSETS, "MODIFIED", noise) == KEY
    assert watch.key_of(paths.STATEFULSETS, "MODIFIED", noise) is None


def test_our_own_status_writes_are_noise() -> None:
    watch = WatchFilter()
    watch.key_of(paths.KVSERVINGS, "ADDED", CR)
    assert watch.key_of(paths.KVSERVINGS, "MODIFIED", CR | {"status": {"phase": "Ready"}}) is None


def test_deletion_always_wakes_and_a_successor_is_news() -> None:
    watch = WatchFilter()
    watch.key_of(paths.STATEFULSETS, "ADDED", CHILD)
    assert watch.key_of(paths.STATEFULSETS, "DELETED", CHILD) == KEY
    assert watch.key_of(paths.STATEFULSETS, "ADDED", CHILD) == KEY


def test_a_new_listing_wakes_everybody_because_events_were_missed() -> None:
    watch = WatchFilter()
    watch.key_of(paths.STATEFULSETS, None, CHILD)
    assert watch.key_of(paths.STATEFULSETS, None, CHILD) == KEY


def test_retries_of_watches_never_run_out() -> None:
    delays = list(islice(EndlessBackoff(), 500))
    assert delays[0] < 1
    assert all(15 <= delay <= 45 for delay in delays[10:])
    assert not hasattr(EndlessBackoff(), "__len__"), "kopf would count the attempts"
