"""Engines that lack the HOT pages they were started with: it is said, and they stay ready."""

from __future__ import annotations

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason, find
from kvserving_operator.observe.store import StoreFault
from kvserving_operator.status import compute, decide, events_between
from tests.unit.status.situations import CRASHING, NOW, roles, situation

FAULT = StoreFault(reason=Reason.FEATURE_MISSING, message="pod x-decode-0 has no GraniKV")


def test_decode_is_ready_and_says_what_it_lacks():
    before = compute(situation(), now=NOW)
    after = compute(situation(previous=before, hot_faults=(FAULT, FAULT)), now=NOW)
    found = find(after.conditions, ConditionType.DECODE_READY)
    ready = find(after.conditions, ConditionType.READY)
    assert found
    assert ready
    assert (found.status, found.reason) == (ConditionStatus.TRUE, Reason.FEATURE_MISSING)
    assert found.message == "pod x-decode-0 has no GraniKV (and 1 more pod)"
    assert ready.status is ConditionStatus.TRUE
    assert decide(before, after, written_at=NOW, now=NOW).write
    [event] = events_between(before, after)
    assert (event.type, event.reason) == ("Warning", Reason.FEATURE_MISSING)


def test_what_keeps_it_from_serving_comes_first():
    broken = situation(roles(decode=CRASHING), hot_faults=(FAULT,))
    found = find(compute(broken, now=NOW).conditions, ConditionType.DECODE_READY)
    assert found
    assert found.reason == Reason.CRASHING
