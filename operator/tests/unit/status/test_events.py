"""Events say what a condition began to say, once a reason."""

from __future__ import annotations

from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.status import Event, Situation, compute, events_between

from .situations import CRASHING, NOW, ROLLING, STARTING, refusal, roles, situation


def status(made: Situation) -> KVServingStatus:
    return compute(made, now=NOW)


def told(before: KVServingStatus, made: Situation) -> dict[str, Event]:
    return {event.reason.value: event for event in events_between(before, status(made))}


READY = status(situation())


def test_a_new_object_tells_that_it_is_created() -> None:
    events = told(KVServingStatus(), situation(roles(decode=STARTING)))
    assert {reason: event.type for reason, event in events.items()} == {"Creating": "Normal"}


def test_ready_is_told() -> None:
    starting = status(situation(roles(decode=STARTING)))
    events = told(starting, situation())
    assert {reason: event.type for reason, event in events.items()} == {"AllReady": "Normal"}


def test_a_crash_is_a_warning_that_names_the_pod() -> None:
    events = told(READY, situation(roles(decode=CRASHING)))
    assert events["Crashing"].type == "Warning"
    assert events["Crashing"].message.startswith("DecodeReady: pod x-0 keeps ending")


def test_losing_readiness_is_a_warning_and_what_belongs_to_every_start_is_not() -> None:
    assert told(READY, situation(roles(decode=STARTING)))["RolesNotReady"].type == "Warning"
    assert told(READY, situation(roles(valkey=STARTING)))["Starting"].type == "Normal"
    assert told(READY, situation(roles(decode=ROLLING)))["RollingOut"].type == "Normal"


def test_one_event_a_reason() -> None:
    events = events_between(READY, status(situation(outcome=refusal(Reason.INVALID))))
    assert [event.reason for event in events] == [Reason.INVALID]
    assert events[0].message.startswith("SpecValid: spec.f0")


def test_nothing_new_nothing_told() -> None:
    assert events_between(READY, READY) == ()
    changed_message = status(situation(roles(decode=STARTING)))
    assert events_between(changed_message, changed_message) == ()
