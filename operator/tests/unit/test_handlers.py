"""Events of KVServings become keys; noise does not."""

from __future__ import annotations

from itertools import islice

from kvserving_operator.handlers import EndlessBackoff, WatchFilter
from kvserving_operator.kube.paths import Key

CR = {"metadata": {"name": "x", "namespace": "n", "uid": "u", "generation": 1}}
KEY = Key("n", "x")


def test_objects_wake_themselves() -> None:
    watch = WatchFilter()
    assert watch.key_of("ADDED", CR) == KEY
    assert watch.key_of("MODIFIED", {"metadata": CR["metadata"] | {"generation": 2}}) == KEY


def test_our_own_status_writes_are_noise() -> None:
    watch = WatchFilter()
    watch.key_of("ADDED", CR)
    assert watch.key_of("MODIFIED", CR | {"status": {"phase": "Ready"}}) is None


def test_deletion_always_wakes_and_a_successor_is_news() -> None:
    watch = WatchFilter()
    watch.key_of("ADDED", CR)
    assert watch.key_of("DELETED", CR) == KEY
    assert watch.key_of("ADDED", CR) == KEY


def test_a_new_listing_wakes_everybody_because_events_were_missed() -> None:
    watch = WatchFilter()
    watch.key_of(None, CR)
    assert watch.key_of(None, CR) == KEY


def test_retries_of_watches_never_run_out() -> None:
    delays = list(islice(EndlessBackoff(), 500))
    assert delays[0] < 1
    assert all(15 <= delay <= 45 for delay in delays[10:])
    assert not hasattr(EndlessBackoff(), "__len__"), "kopf would count the attempts"
