"""RemoteTierReady and status.tier: pods, looks and engines together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.api.conditions import Condition, ConditionStatus, ConditionType, Reason
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.store import REASONS, StoreFault
from kvserving_operator.observe.tier_health import TierFault, TierHealth
from kvserving_operator.reconcile.observing import _standing
from kvserving_operator.status import compute, events_between
from tests.unit.stack import CPU, planned

from .situations import NOW, STARTING, refusal, role, roles, situation
from .test_writing import Stored

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
TYPE = ConditionType.REMOTE_TIER_READY
EXTERNAL = planned(
    {
        **CPU,
        "model.attention": "MLA",
        "kvCache.remote": {"type": "External", "external": {"urlTemplate": "resp://h:1"}},
    }
)
SEEN = TierHealth(asked=True, seen=True, good=2)
DEAD = replace(
    SEEN, good=1, faults=(TierFault(reason=Reason.TIER_UNREACHABLE, message="h:1 is away"),)
)
REFUSED = replace(
    SEEN, good=0, faults=(TierFault(reason=Reason.TIER_AUTH_FAILED, message="pod x refuses"),)
)
SLOW = replace(
    SEEN, concerns=(TierFault(reason=Reason.TIER_INSTANCE_SLOW, message="pod x is slow"),)
)


def managed(tier: TierHealth, **changes: Any) -> KVServingStatus:
    return compute(situation(tier=tier, **changes), now=NOW)


def external(tier: TierHealth, **changes: Any) -> KVServingStatus:
    healths = {Role.DECODE: role(), Role.ROUTER: role()}
    return compute(situation(healths, outcome=EXTERNAL, tier=tier, **changes), now=NOW)


def said(status: KVServingStatus) -> Condition:
    [found] = [c for c in status.conditions if c.type == TYPE]
    return found


def test_no_more_are_ready_than_there_are() -> None:
    """A spec with fewer instances, before the next look."""
    for tier in (replace(SEEN, good=3), TierHealth(asked=True)):
        before = external(SEEN)
        assert before.tier is not None
        before = before.model_copy(update={"tier": before.tier.model_copy(update={"ready": 3})})
        found = external(tier, previous=before).tier
        assert found is not None
        assert found.summary == "1/1"


def got(status: KVServingStatus) -> tuple[ConditionStatus, str]:
    return said(status).status, said(status).reason


@pytest.mark.parametrize("of", [managed, external])
@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        (DEAD, (FALSE, Reason.TIER_UNREACHABLE)),
        (REFUSED, (FALSE, Reason.TIER_AUTH_FAILED)),
        (SLOW, (TRUE, Reason.TIER_INSTANCE_SLOW)),
        (TierHealth(asked=True), (UNKNOWN, Reason.NOT_MEASURED)),
        (replace(SEEN, seen=False), (UNKNOWN, Reason.NOT_MEASURED)),
    ],
    ids=["dead", "refused", "slow", "not yet", "not all yet"],
)
def test_both_kinds_of_tier(of: Any, tier: TierHealth, expected: Any) -> None:
    status = of(tier)
    assert got(status) == expected
    [ready] = [c for c in status.conditions if c.type == ConditionType.READY]
    assert ready.status is TRUE, "a tier never makes the stack unready"


def test_what_a_tier_that_is_well_says() -> None:
    assert got(managed(SEEN)) == (TRUE, Reason.REPLICAS_READY)
    status = external(SEEN)
    assert got(status) == (TRUE, Reason.INSTANCES_ANSWER)
    assert said(status).message == "2 instances store a value and give it back"


def test_ready_instances_are_those_that_engines_can_use() -> None:
    status = managed(DEAD)
    assert status.tier is not None
    assert (status.tier.ready, status.tier.summary) == (1, "1/1")
    status = external(DEAD)
    assert status.tier is not None
    assert (status.tier.instances, status.tier.ready, status.tier.summary) == (1, 1, "1/1")
    assert status.tier.epoch == EXTERNAL.tier_epoch


def test_pods_that_start_are_no_news_of_the_tier() -> None:
    starting = roles(valkey=STARTING)
    found = managed(DEAD, roles=starting)
    assert got(found) == (FALSE, Reason.STARTING)
    # But a refused login is why their probes fail.
    assert got(managed(REFUSED, roles=starting)) == (FALSE, Reason.TIER_AUTH_FAILED)


def test_engines_that_cannot_use_a_tier_that_answers() -> None:
    fault = StoreFault(reason=Reason.TIER_CLOSED, message="pod p: closed")
    assert got(managed(SEEN, store_faults=(fault,))) == (FALSE, Reason.TIER_CLOSED)
    assert got(external(SEEN, store_faults=(fault,))) == (FALSE, Reason.TIER_CLOSED)
    assert got(external(DEAD, store_faults=(fault,))) == (FALSE, Reason.TIER_UNREACHABLE)


MISTAKEN = StoreFault(reason=Reason.ATTENTION_MISMATCH, message="pod p: spec.model.attention")


@pytest.mark.parametrize("of", [managed, external])
@pytest.mark.parametrize("tier", [SEEN, DEAD, REFUSED, SLOW], ids=["good", "dead", "no", "slow"])
def test_what_only_a_change_of_the_spec_mends_is_told_first_whatever_instances_do(
    of: Any, tier: TierHealth
) -> None:
    closed = StoreFault(reason=Reason.TIER_CLOSED, message="pod a: closed")
    found = of(tier, store_faults=(closed, MISTAKEN))
    assert got(found) == (FALSE, Reason.ATTENTION_MISMATCH)
    assert MISTAKEN.message in said(found).message
    for fault in tier.faults:
        assert said(found).message.endswith(f"; beside that {fault.message}")


def test_what_stands_while_nobody_can_be_asked_does_not_grow() -> None:
    stored = managed(DEAD, store_faults=(MISTAKEN, MISTAKEN))
    for tier in (DEAD, REFUSED, DEAD):
        of = situation().generation
        standing = _standing(stored, TYPE, REASONS, of)
        stored = managed(tier, previous=stored, store_faults=standing.faults)
        [fault] = tier.faults
        message = f"{MISTAKEN.message} (and 1 more pod); beside that {fault.message}"
        assert said(stored).message == message


def test_and_also_while_its_pods_start_anew() -> None:
    found = managed(DEAD, roles=roles(valkey=STARTING), store_faults=(MISTAKEN,))
    assert got(found) == (FALSE, Reason.ATTENTION_MISMATCH)
    alone = managed(DEAD, roles=roles(valkey=STARTING))
    assert said(found).message.endswith(f"; beside that {said(alone).message}")


@pytest.mark.parametrize("of", [managed, external])
@pytest.mark.parametrize("before", [SEEN, SLOW, DEAD, REFUSED], ids=["good", "slow", "dead", "no"])
def test_a_restart_of_the_operator_says_the_same_until_it_has_looked(
    of: Any, before: TierHealth
) -> None:
    written = of(before)
    assert of(TierHealth(asked=True), previous=written) == written


def test_what_another_version_said_stands_until_it_has_looked() -> None:
    good = managed(SEEN)
    conditions = tuple(
        c.model_copy(update={"reason": "Splendid"}) if c.type == TYPE else c
        for c in good.conditions
    )
    before = good.model_copy(update={"conditions": conditions})
    assert got(managed(TierHealth(asked=True), previous=before)) == (TRUE, "Splendid")


def test_another_spec_is_looked_at_anew() -> None:
    written = external(SEEN)
    status = external(TierHealth(asked=True), previous=written, generation=2)
    assert got(status) == (UNKNOWN, Reason.NOT_MEASURED)


def test_what_pods_said_is_not_kept_in_the_place_of_a_look() -> None:
    written = managed(SEEN, roles=roles(valkey=STARTING))
    assert got(managed(TierHealth(asked=True), previous=written)) == (UNKNOWN, Reason.NOT_MEASURED)


def test_a_refused_spec_has_no_looks() -> None:
    status = managed(TierHealth(), outcome=refusal(Reason.INVALID), previous=managed(SEEN))
    assert got(status) == (TRUE, Reason.REPLICAS_READY)


def test_a_slow_instance_and_a_dead_one_are_events_and_their_end_is_none() -> None:
    well, slow, dead = external(SEEN), external(SLOW), external(DEAD)
    [event] = events_between(well, slow)
    assert (event.type, event.reason) == ("Warning", Reason.TIER_INSTANCE_SLOW)
    assert event.message == "RemoteTierReady: pod x is slow"
    [event] = events_between(slow, dead)
    assert (event.type, event.reason) == ("Warning", Reason.TIER_UNREACHABLE)
    assert events_between(dead, well) == ()


def test_the_first_look_is_told_of_at_once() -> None:
    stored = Stored()
    stored.offer(situation(tier=TierHealth(asked=True)), 0)
    assert stored.offer(situation(tier=SEEN), 1).write


def test_writes_about_a_tier_that_comes_and_goes() -> None:
    """Its loss is told at once, its return after a minute: an hour of both is few writes."""
    healths = {Role.DECODE: role(), Role.ROUTER: role()}

    def at(tier: TierHealth, second: float) -> Any:
        return stored.offer(situation(healths, outcome=EXTERNAL, tier=tier), second)

    stored = Stored()
    at(SEEN, 0)
    assert at(DEAD, 1000).write
    back = at(SEEN, 1010)
    assert (back.write, back.look_again) == (False, 50)
    assert at(SEEN, 1061).write
    stored.writes = 0
    for minute in range(60):
        at(DEAD if minute % 2 else SEEN, 2000 + 60 * minute)
    assert stored.writes <= 60
    stored.writes = 0
    at(SEEN, 10_000)
    for minute in range(60):
        at(SEEN, 10_001 + 60 * minute)
    assert stored.writes <= 1
