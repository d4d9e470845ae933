"""Events: one per object and reason, counted, and never the reason for a failed pass."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.reconcile import PassResult
from kvserving_operator.runtime.events import QUIET, EventRecorder, event_name
from kvserving_operator.status import Event

pytestmark = pytest.mark.looptime

KEY = Key("n", "x")
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class Store:
    """Keeps Events by name, as far as the recorder uses them."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.error: Exception | None = None

    async def get(self, resource: Resource, namespace: str, name: str) -> Any:
        return self.events.get(name)

    async def create(self, event: dict[str, Any]) -> Any:
        self._write()
        self.events[event["metadata"]["name"]] = event
        return event

    async def merge(self, resource: Resource, namespace: str, name: str, patch: Any) -> Any:
        self._write()
        if name not in self.events:
            raise errors.NotFoundError(status=404, reason="", message="", call="")
        self.events[name] |= patch
        return self.events[name]

    def _write(self) -> None:
        self.writes += 1
        if self.error:
            raise self.error


def recorder(store: Store) -> EventRecorder:
    return EventRecorder(cast(ApiClient, store), identity="pod-1", now=lambda: NOW)


def result(*reasons: Reason, message: str = "told", uid: str = "u") -> PassResult:
    events = tuple(Event(type="Warning", reason=r, message=message) for r in reasons)
    return PassResult(events=events, uid=uid)


async def test_an_event_is_about_the_object_and_says_who_reports() -> None:
    store = Store()
    await recorder(store).record(KEY, result(Reason.CRASHING))
    (event,) = store.events.values()
    assert event["involvedObject"] == {
        "apiVersion": "kvserving.io/v1alpha1",
        "kind": "KVServing",
        "namespace": "n",
        "name": "x",
        "uid": "u",
    }
    assert (event["reason"], event["type"], event["count"]) == ("Crashing", "Warning", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-11-30T12:00:00Z"
    assert event["reportingInstance"] == "pod-1"


async def test_repetition_raises_the_count_of_the_one_event() -> None:
    store = Store()
    made = recorder(store)
    for message in ("one", "two", "three"):
        await made.record(KEY, result(Reason.CRASHING, message=message))
        await asyncio.sleep(QUIET + 1)
    (event,) = store.events.values()
    assert (event["count"], event["message"]) == (3, "three")


async def test_quick_repetition_is_counted_but_not_written() -> None:
    store = Store()
    made = recorder(store)
    for _ in range(50):
        await made.record(KEY, result(Reason.CRASHING))
        await asyncio.sleep(0.1)
    assert store.writes == 1
    await asyncio.sleep(QUIET)
    await made.record(KEY, result(Reason.CRASHING))
    (event,) = store.events.values()
    assert event["count"] == 51


async def test_what_is_told_before_it_is_done_is_written_at_once() -> None:
    store = Store()
    events = recorder(store)
    for message in ("half of it goes", "all of it goes"):
        told = Event(type="Normal", reason=Reason.HIT_LOSS_EXPECTED, message=message)
        await events.tell(KEY, "u", told)
        (event,) = store.events.values()
        assert event["message"] == message
    assert event["count"] == 2


async def test_the_count_goes_on_after_a_restart() -> None:
    store = Store()
    await recorder(store).record(KEY, result(Reason.CRASHING))
    await recorder(store).record(KEY, result(Reason.CRASHING))
    (event,) = store.events.values()
    assert event["count"] == 2


async def test_an_event_that_expired_starts_again() -> None:
    store = Store()
    made = recorder(store)
    await made.record(KEY, result(Reason.CRASHING))
    store.events.clear()
    await asyncio.sleep(QUIET + 1)
    await made.record(KEY, result(Reason.CRASHING))
    (event,) = store.events.values()
    assert event["count"] == 1


async def test_reasons_and_objects_have_their_own_events() -> None:
    store = Store()
    made = recorder(store)
    await made.record(KEY, result(Reason.CRASHING, Reason.ALL_READY))
    await made.record(KEY, result(Reason.CRASHING, uid="another"))
    assert len(store.events) == 3
    assert all(len(name) <= 253 for name in store.events)


def test_names_are_deterministic() -> None:
    assert event_name(KEY, "u", "Crashing") == event_name(KEY, "u", "Crashing")
    assert event_name(KEY, "u", "Crashing") != event_name(KEY, "u", "Starting")


async def test_a_failed_event_fails_nothing_but_a_closed_fence_does() -> None:
    store = Store()
    store.error = errors.ApiError(status=500, reason="", message="", call="")
    await recorder(store).record(KEY, result(Reason.CRASHING, Reason.ALL_READY))
    assert store.writes == 2
    store.error = errors.FencedError()
    with pytest.raises(errors.FencedError):
        await recorder(store).record(KEY, result(Reason.CRASHING))
