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
        (None, ConditionStatus.UNKNOWN, Reason.NO_TRAFFIC),
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


QUIET = Verdict(outcome=Outcome.NO_TRAFFIC)
BRIEFLY = replace(QUIET, brief=True)


@pytest.mark.parametrize("told", [Outcome.SUCCEED, Outcome.FAIL])
@pytest.mark.parametrize("verdict", [None, BRIEFLY])
def test_what_was_told_before_stands_until_something_else_is_seen(
    told: Outcome, verdict: Verdict | None
) -> None:
    """An operator that starts anew beside idle engines writes nothing."""
    before = compute(situation(transfers=seen(told, "pod x: transfers fail")), now=NOW)
    after = Transfers(verdict=verdict, look_again=60.0)
    made = replace(situation(transfers=after), previous=before)
    assert compute(made, now=NOW) == before


@pytest.mark.parametrize("told", [Outcome.SUCCEED, Outcome.FAIL, Outcome.NOT_MEASURED])
@pytest.mark.parametrize("brief", [True, False])
def test_no_traffic_is_told_where_nothing_speaks_against_it(told: Outcome, *, brief: bool) -> None:
    before = compute(situation(transfers=seen(told, "pod x: transfers fail")), now=NOW)
    after = Transfers(verdict=replace(QUIET, brief=brief), look_again=60.0)
    found = get(compute(replace(situation(transfers=after), previous=before), now=NOW), TYPE)
    stands = brief and told is not Outcome.NOT_MEASURED
    assert (found.reason == Reason.NO_TRAFFIC) is not stands


def test_an_object_that_was_never_used_has_nothing_to_write_once_its_engines_answer() -> None:
    first = compute(situation(transfers=seen(None)), now=NOW)
    for verdict in (BRIEFLY, QUIET):
        after = situation(transfers=Transfers(verdict=verdict, look_again=60.0))
        assert compute(replace(after, previous=first), now=NOW) == first
