"""TransferHealthy: what a pass knows of transfers, as a condition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason, find
from kvserving_operator.measure.transfer import Outcome, Verdict
from kvserving_operator.status import compute
from kvserving_operator.status.transfer import Transfers
from tests.unit.status.situations import NOW, get, situation

TYPE = ConditionType.TRANSFER_HEALTHY


def seen(outcome: Outcome | None, *faults: str) -> Transfers:
    verdict = None if outcome is None else Verdict(outcome=outcome, faults=faults)
    return Transfers(verdict=verdict, look_again=60.0)


@pytest.mark.parametrize(
    ("outcome", "status", "reason"),
    [
        (Outcome.SUCCEED, ConditionStatus.TRUE, Reason.TRANSFERS_SUCCEED),
        (Outcome.FAIL, ConditionStatus.FALSE, Reason.TRANSFERS_FAIL),
        (Outcome.NO_TRAFFIC, ConditionStatus.UNKNOWN, Reason.NO_TRAFFIC),
        (Outcome.NOT_MEASURED, ConditionStatus.UNKNOWN, Reason.NOT_MEASURED),
        (None, ConditionStatus.UNKNOWN, Reason.NOT_MEASURED),
    ],
)
def test_what_is_seen_is_told_and_ready_is_not_about_it(
    outcome: Outcome | None, status: ConditionStatus, reason: Reason
) -> None:
    found = compute(situation(transfers=seen(outcome, "pod x: transfers fail")), now=NOW)
    told = get(found, TYPE)
    assert (told.status, told.reason) == (status, reason)
    assert ("pod x: transfers fail" in told.message) is (outcome is Outcome.FAIL)
    assert get(found, ConditionType.READY).status is ConditionStatus.TRUE


def test_it_is_absent_where_nothing_is_transferred() -> None:
    assert find(compute(situation(), now=NOW).conditions, TYPE) is None


def test_what_was_told_before_stands_until_something_can_be_told() -> None:
    before = compute(situation(transfers=seen(Outcome.FAIL, "pod x: transfers fail")), now=NOW)
    made = replace(situation(transfers=seen(None)), previous=before)
    assert get(compute(made, now=NOW), TYPE) == get(before, TYPE)
