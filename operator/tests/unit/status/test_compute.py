"""Conditions, phase and figures from a situation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.plan.model import Plan
from kvserving_operator.status import Situation, compute
from tests.unit.stack import CPU, planned

from .situations import (
    CRASHING,
    NOW,
    PLAN,
    ROLLING,
    STARTING,
    get,
    refusal,
    role,
    roles,
    situation,
    trouble,
)

READY = ConditionType.READY
TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def computed(made: Situation) -> KVServingStatus:
    return compute(made, now=NOW)


def movement(status: KVServingStatus) -> tuple[str, str, str, str]:
    """Progressing, Reconciling, Stalled, and the reason that they share."""
    kinds = (ConditionType.PROGRESSING, ConditionType.RECONCILING, ConditionType.STALLED)
    found = [get(status, kind) for kind in kinds]
    assert len({c.reason for c in found}) == 1
    return (*(c.status.value for c in found), found[0].reason)  # type: ignore[return-value]


def test_all_good() -> None:
    status = computed(situation())
    assert status.phase == "Ready"
    assert status.observed_generation == 1
    assert [c.type for c in status.conditions] == [
        "Ready",
        "SpecValid",
        "Progressing",
        "PrefillReady",
        "DecodeReady",
        "RemoteTierReady",
        "RouterReady",
        "Reconciling",
        "Stalled",
    ]
    bad = [c.type for c in status.conditions if c.status is not TRUE]
    assert bad == ["Reconciling", "Stalled"], "every True is good except the kstatus pair"
    assert movement(status) == ("True", "False", "False", "Settled")


def test_a_role_that_is_off_has_no_condition_and_no_figures() -> None:
    only = {Role.DECODE: role(), Role.ROUTER: role()}
    status = computed(situation(only, previous=computed(situation())))
    types = {c.type for c in status.conditions}
    assert not types & {"PrefillReady", "RemoteTierReady"}
    assert status.prefill is None
    assert status.tier is None


@pytest.mark.parametrize(
    ("health", "reason", "message"),
    [
        (STARTING, Reason.STARTING, "0 of 2 replicas ready"),
        (role(ready=1, current=1), Reason.REPLICAS_NOT_READY, "1 of 2 replicas ready"),
        (ROLLING, Reason.ROLLING_OUT, "1 of 2 replicas ready at the current revision"),
        (CRASHING, Reason.CRASHING, "pod x-0 keeps ending (and 2 more pods)"),
        (
            role(exists=False, observed=False, replicas=0, ready=0, updated=0, current=0),
            Reason.CREATING,
            "StatefulSet x-decode does not exist yet",
        ),
        (
            role(observed=False, updated=0, current=0),
            Reason.STARTING,
            "StatefulSet x-decode: its controller has not seen the change yet",
        ),
    ],
)
def test_a_role_that_does_not_serve_says_why(health: Any, reason: Reason, message: str) -> None:
    status = computed(situation(roles(decode=health)))
    found = get(status, ConditionType.DECODE_READY)
    assert (found.status, found.reason, found.message) == (FALSE, reason, message)
    ready = get(status, READY)
    assert (ready.status, ready.reason) == (FALSE, Reason.ROLES_NOT_READY)
    assert message in ready.message


def test_ready_does_not_depend_on_the_tier() -> None:
    status = computed(situation(roles(valkey=CRASHING)))
    assert get(status, READY).status is TRUE
    assert get(status, ConditionType.REMOTE_TIER_READY).status is FALSE
    assert status.phase == "Ready"


def test_unreadable_is_unknown_and_not_false() -> None:
    status = computed(
        situation(
            roles(decode=None),
            troubles=(trouble(Reason.READ_FAILED, stalled=True),),
        )
    )
    assert get(status, ConditionType.DECODE_READY).status is UNKNOWN
    assert get(status, READY).status is UNKNOWN
    assert movement(status) == ("False", "False", "True", "ReadFailed")


def test_scaled_to_zero_is_what_was_asked_for() -> None:
    none = role(desired=0, replicas=0, ready=0, updated=0, current=0)
    found = get(computed(situation(roles(prefill=none))), ConditionType.PREFILL_READY)
    assert (found.status, found.reason) == (TRUE, Reason.SCALED_TO_ZERO)


def test_refused_spec() -> None:
    before = computed(situation())
    made = situation(outcome=refusal(Reason.INVALID, Reason.INVALID), generation=2, previous=before)
    status = computed(made)
    valid = get(status, ConditionType.SPEC_VALID)
    assert (valid.status, valid.reason) == (FALSE, Reason.INVALID)
    assert valid.message == "spec.f0: is wrong; change it; spec.f1: is wrong; change it"
    assert get(status, READY).status is FALSE
    assert get(status, ConditionType.DECODE_READY).status is TRUE, "it was left running"
    assert movement(status) == ("False", "False", "True", "Invalid")
    assert status.phase == "Invalid"
    assert status.observed_generation == 2
    assert (status.kv_shards, status.gpus, status.tier) == (
        before.kv_shards,
        before.gpus,
        before.tier,
    )


def test_not_available_yet_is_told_apart_from_wrong() -> None:
    def reason(*reasons: Reason) -> str:
        status = computed(situation(outcome=refusal(*reasons)))
        return get(status, ConditionType.SPEC_VALID).reason

    assert reason(Reason.NOT_AVAILABLE_YET) == Reason.NOT_AVAILABLE_YET
    assert reason(Reason.NOT_AVAILABLE_YET, Reason.INVALID) == Reason.INVALID


def test_rejected_by_the_server_is_an_invalid_spec() -> None:
    status = computed(situation(troubles=(trouble(Reason.REJECTED_BY_SERVER, stalled=True),)))
    assert get(status, ConditionType.SPEC_VALID).reason == Reason.REJECTED_BY_SERVER
    assert movement(status) == ("False", "False", "True", "RejectedByServer")


def test_a_taken_name_is_not_ready_although_everything_runs() -> None:
    status = computed(situation(troubles=(trouble(Reason.NAME_CONFLICT, stalled=True),)))
    ready = get(status, READY)
    assert (ready.status, ready.reason) == (FALSE, Reason.NAME_CONFLICT)
    assert movement(status) == ("False", "False", "True", "NameConflict")
    assert status.phase == "Degraded"


def test_a_failed_write_of_a_new_generation_is_not_ready() -> None:
    failed = (trouble(Reason.APPLY_FAILED, stalled=False),)
    before = computed(situation())
    status = computed(situation(troubles=failed, previous=before, generation=2))
    assert get(status, READY).reason == Reason.APPLY_FAILED
    assert movement(status) == ("False", "True", "False", "ApplyFailed")


def test_a_new_generation_that_is_not_written_yet_is_neither_ready_nor_settled() -> None:
    """The roles are well, for the previous spec: a write of this one met a 503."""
    status = compute(situation(generation=2, unfinished=True), now=NOW)
    ready = get(status, ConditionType.READY)
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, Reason.ROLES_NOT_READY)
    assert "not everything" in ready.message
    assert get(status, ConditionType.RECONCILING).status is ConditionStatus.TRUE
    assert get(status, ConditionType.STALLED).status is ConditionStatus.FALSE


def test_an_unfinished_repair_does_not_take_it_out_of_service() -> None:
    before = compute(situation(), now=NOW)
    status = compute(situation(previous=before, unfinished=True), now=NOW)
    assert get(status, ConditionType.READY).status is ConditionStatus.TRUE
    assert get(status, ConditionType.RECONCILING).status is ConditionStatus.TRUE


def test_a_failed_repair_of_a_generation_that_was_ready_does_not_take_it_out_of_service() -> None:
    failed = (trouble(Reason.APPLY_FAILED, stalled=False),)
    status = computed(situation(troubles=failed, previous=computed(situation())))
    assert get(status, READY).status is TRUE
    assert movement(status) == ("False", "True", "False", "ApplyFailed")


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (STARTING, ("True", "True", "False", "Creating")),
        (ROLLING, ("True", "True", "False", "RollingOut")),
        (role(draining=1), ("True", "True", "False", "Draining")),
        (CRASHING, ("False", "True", "False", "NoProgress")),
    ],
)
def test_what_is_under_way(health: Any, expected: tuple[str, ...]) -> None:
    assert movement(computed(situation(roles(decode=health)))) == expected


def test_paused_rollout_serves_with_old_replicas() -> None:
    paused: Plan = replace(PLAN, rollout_paused=True)
    status = computed(situation(roles(decode=ROLLING), outcome=paused))
    assert get(status, READY).status is TRUE
    assert "older revision" in get(status, ConditionType.DECODE_READY).message
    assert movement(status) == ("True", "False", "False", "RolloutPaused")


def test_paused_rollout_still_waits_for_what_is_missing() -> None:
    paused: Plan = replace(PLAN, rollout_paused=True)
    status = computed(situation(roles(decode=STARTING), outcome=paused))
    assert get(status, READY).status is FALSE
    assert movement(status)[1] == "True"


def test_suspended() -> None:
    status = computed(situation(suspended=True, pending=("Service x", "Deployment x-router")))
    assert status.phase == "Suspended"
    assert get(status, READY).status is TRUE
    assert movement(status) == ("True", "False", "False", "Suspended")
    message = get(status, ConditionType.PROGRESSING).message
    assert message == (
        "suspended: nothing is changed; differ from the spec: Service x, Deployment x-router"
    )


def test_figures() -> None:
    status = computed(situation(roles(decode=role(replicas=3, draining=1, ready=2))))
    assert status.kv_shards == PLAN.kv_shards
    assert status.gpus is not None
    assert status.gpus.requested == PLAN.gpus
    assert status.tier is not None
    assert PLAN.tier is not None
    assert (status.tier.instances, status.tier.ready, status.tier.epoch) == (
        PLAN.tier.instances,
        2,
        PLAN.tier.epoch,
    )
    assert status.tier.summary == f"2/{PLAN.tier.instances}"
    assert status.decode is not None
    assert status.decode.to_dict() == {
        "replicas": 3,
        "ready": 2,
        "updated": 2,
        "draining": 1,
        "summary": "2/2",
        "revision": "r1",
        "selector": "kvserving.io/kvserving=x,kvserving.io/role=decode",
    }


def test_equal_situations_give_equal_status_at_any_time() -> None:
    first = computed(situation())
    later = compute(situation(previous=first), now=NOW + timedelta(days=1))
    assert later == first


def test_only_a_changed_status_gets_a_new_time() -> None:
    first = computed(situation())
    later = compute(
        situation(roles(decode=STARTING), previous=first), now=NOW + timedelta(minutes=1)
    )
    times = {c.type: c.last_transition_time for c in later.conditions}
    assert times["DecodeReady"] == times["Ready"] == "2026-11-30T12:01:00Z"
    assert times["PrefillReady"] == times["SpecValid"] == "2026-11-30T12:00:00Z"


def test_the_status_is_what_the_schema_stores() -> None:
    status = computed(situation())
    assert KVServingStatus.model_validate(status.to_dict()) == status


def test_measured_parts_of_the_status_are_carried_on() -> None:
    stored = KVServingStatus.model_validate(
        {"model": {"bytesPerToken": 48000}, "tuning": {"loading": "Async"}}
    )
    status = computed(situation(previous=stored))
    assert (status.model, status.tuning) == (stored.model, stored.tuning)


def test_an_absent_optional_api_is_a_note_and_no_fault() -> None:
    status = computed(situation(absent=("HTTPRoute (gateway.networking.k8s.io/v1)",)))
    valid = get(status, ConditionType.SPEC_VALID)
    assert (valid.status, valid.reason) == (TRUE, Reason.OPTIONAL_API_ABSENT)
    assert "HTTPRoute (gateway.networking.k8s.io/v1)" in valid.message
    assert (status.phase, get(status, READY).status) == ("Ready", TRUE)


def test_an_external_tier_is_unknown_and_keeps_nobody_from_being_ready() -> None:
    external = {
        **CPU,
        "model.attention": "MLA",
        "kvCache.remote": {"type": "External", "external": {"urlTemplate": "resp://h:1"}},
    }
    plan = planned(external)
    healths = {Role.DECODE: role(), Role.ROUTER: role()}
    status = computed(situation(healths, outcome=plan))
    tier = get(status, ConditionType.REMOTE_TIER_READY)
    assert (tier.status, tier.reason) == (UNKNOWN, Reason.NOT_MEASURED)
    assert get(status, READY).status is TRUE
    assert status.tier is not None
    assert (status.tier.instances, status.tier.epoch) == (1, plan.tier_epoch)
    assert status.tier.summary is None
