"""Engines that are ready and not well: it is told once, and takes nothing out of service."""

from __future__ import annotations

from dataclasses import replace

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Phase, Reason
from kvserving_operator.engines.base import Role
from kvserving_operator.measure.vitals import Sign
from kvserving_operator.observe.store import StoreFault
from kvserving_operator.status import compute, decide, events_between
from kvserving_operator.status.vitals import Vitals
from tests.unit.status.situations import CRASHING, NOW, get, roles, situation

KNOWN = frozenset[Sign]()
WELL = Vitals(unknown=KNOWN)
DECODE, PREFILL = ConditionType.DECODE_READY, ConditionType.PREFILL_READY


def hung(*pods: str, role: Role = Role.DECODE) -> Vitals:
    return Vitals(signs={role: tuple((Sign.HUNG, pod) for pod in pods)}, unknown=KNOWN)


def restarting(*pods: str) -> Vitals:
    return Vitals(signs={Role.PREFILL: tuple((Sign.RESTARTS, pod) for pod in pods)}, unknown=KNOWN)


def test_a_hung_engine_is_named_at_once_by_one_event_and_stays_ready():
    before = compute(situation(vitals=WELL), now=NOW)
    after = compute(situation(previous=before, vitals=hung("x-decode-0", "x-decode-1")), now=NOW)
    found = get(after, DECODE)
    assert (found.status, found.reason) == (ConditionStatus.TRUE, Reason.ENGINE_HUNG)
    assert found.message == (
        "the engine in pod x-decode-0 has requests and gets nothing done; its probe passes all the "
        "same (and 1 more pod)"
    )
    assert get(after, ConditionType.READY).status is ConditionStatus.TRUE
    assert (after.phase, get(after, PREFILL)) == (Phase.READY, get(before, PREFILL))
    assert decide(before, after, written_at=NOW, now=NOW).write
    [event] = events_between(before, after)
    assert (event.type, event.reason) == ("Warning", Reason.ENGINE_HUNG)
    again = compute(situation(previous=after, vitals=hung("x-decode-0", "x-decode-1")), now=NOW)
    assert again == after


def test_that_it_is_over_waits_for_its_turn():
    before = compute(situation(vitals=hung("x-decode-0")), now=NOW)
    after = compute(situation(previous=before, vitals=WELL), now=NOW)
    assert get(after, DECODE).reason == Reason.REPLICAS_READY
    decision = decide(before, after, written_at=NOW, now=NOW)
    assert (decision.write, decision.look_again) == (False, 300.0)
    assert events_between(before, after) == ()


def test_an_agent_that_ends_again_and_again_is_named():
    before = compute(situation(vitals=WELL), now=NOW)
    after = compute(situation(previous=before, vitals=restarting("x-prefill-0")), now=NOW)
    found = get(after, PREFILL)
    assert (found.status, found.reason) == (ConditionStatus.TRUE, Reason.AGENT_RESTARTING)
    assert "pod x-prefill-0" in found.message
    assert decide(before, after, written_at=NOW, now=NOW).write
    assert [event.reason for event in events_between(before, after)] == [Reason.AGENT_RESTARTING]


def test_of_several_the_gravest_is_told():
    hot = (StoreFault(reason=Reason.FEATURE_MISSING, message="no GraniKV"),)
    both = Vitals(
        signs={Role.DECODE: ((Sign.HUNG, "x-decode-1"), (Sign.RESTARTS, "x-decode-0"))},
        unknown=KNOWN,
    )
    restarts = Vitals(signs={Role.DECODE: ((Sign.RESTARTS, "x-decode-0"),)}, unknown=KNOWN)

    def reason(vitals: Vitals, faults: tuple[StoreFault, ...]) -> str:
        made = situation(vitals=vitals, hot_faults=faults)
        return get(compute(made, now=NOW), DECODE).reason

    assert reason(both, hot) == Reason.ENGINE_HUNG
    assert reason(restarts, hot) == Reason.FEATURE_MISSING
    assert reason(restarts, ()) == Reason.AGENT_RESTARTING


def test_what_keeps_a_role_from_serving_comes_first():
    broken = situation(roles(decode=CRASHING), vitals=hung("x-decode-0"))
    assert get(compute(broken, now=NOW), DECODE).reason == Reason.CRASHING


def test_a_new_operator_takes_nothing_back_that_it_cannot_know():
    before = compute(situation(vitals=restarting("x-prefill-0")), now=NOW)
    told = get(before, PREFILL)
    for vitals in (Vitals(), Vitals(unknown=frozenset({Sign.RESTARTS}))):
        assert get(compute(situation(previous=before, vitals=vitals), now=NOW), PREFILL) == told
    knows = Vitals(unknown=frozenset({Sign.HUNG}))
    after = compute(situation(previous=before, vitals=knows), now=NOW)
    assert get(after, PREFILL).reason == Reason.REPLICAS_READY
    edited = replace(situation(previous=before, vitals=Vitals()), generation=2)
    assert get(compute(edited, now=NOW), PREFILL).reason == Reason.REPLICAS_READY
