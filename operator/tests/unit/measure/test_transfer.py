"""How transfers end, by what engines say at one look after the other."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from typing import Any

import pytest

from kvserving_operator.measure import Aged, EngineFacts
from kvserving_operator.measure.transfer import (
    HOLD,
    WINDOW,
    Outcome,
    TransferHistory,
    Verdict,
    follow,
)

from .stock_pages import CAPTURED, facts_of

LOOK = 60.0
WELL = Verdict(outcome=Outcome.SUCCEED)
NOTHING_YET = Verdict(outcome=Outcome.NO_TRAFFIC, brief=True)


def engine(
    pod: str, *, start: str | None = "s1", age: float = 1.0, **numbers: float
) -> EngineFacts:
    return EngineFacts(
        pod=pod,
        role="decode" if "decode" in pod else "prefill",
        start_id=start,
        numbers={name: Aged(value=value, age_seconds=age) for name, value in numbers.items()},
        scrape_age_seconds=age,
    )


class Looks:
    """One look a minute at a prefill and a decode engine."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.history: TransferHistory | None = None
        self.decode = {"nixlTransfers": 0.0, "nixlFailedTransfers": 0.0, "requestsFinished": 0.0}
        self.prefill = {"nixlExpiredRequests": 0.0, "nixlLateNotifications": 0.0}
        self.start = "s1"

    def look(self, **more: float) -> Verdict | None:
        """Let so many more of each happen, then look."""
        for name, count in more.items():
            page = self.decode if name in self.decode else self.prefill
            page[name] += count
        engines = [
            engine("x-decode-0", start=self.start, **self.decode),
            engine("x-prefill-0", **self.prefill),
        ]
        return self.see({facts.pod: facts for facts in engines})

    def see(self, engines: dict[str, EngineFacts]) -> Verdict | None:
        self.now += LOOK
        self.history = follow(self.history, engines, self.now)
        return self.history.verdict

    def looks(self, times: int, **more: float) -> list[Verdict | None]:
        return [self.look(**more) for _ in range(times)]


@pytest.fixture
def seen() -> Looks:
    looks = Looks()
    looks.look(nixlTransfers=5000, nixlFailedTransfers=400)
    return looks


def test_the_first_look_says_nothing_whatever_happened_before_it(seen: Looks) -> None:
    assert seen.history is not None
    assert seen.history.verdict == NOTHING_YET
    assert seen.look(nixlTransfers=10) == WELL


def test_a_failure_names_the_pod_and_what(seen: Looks) -> None:
    assert seen.look(nixlTransfers=50, nixlLateNotifications=1) == Verdict(
        outcome=Outcome.FAIL, faults=("pod x-prefill-0: KV is fetched after its lease",)
    )
    found = seen.look(nixlTransfers=50, nixlFailedTransfers=2)
    assert found is not None
    assert found.faults == (
        "pod x-decode-0: transfers fail",
        "pod x-prefill-0: KV is fetched after its lease",
    )


@pytest.mark.parametrize("what", ["nixlFailedTransfers", "nixlLateNotifications"])
def test_every_kind_counts(seen: Looks, what: str) -> None:
    found = seen.look(nixlTransfers=50, **{what: 3})
    assert found is not None
    assert found.outcome is Outcome.FAIL


RUN_OUT = "pod x-prefill-0: leases run out before a decode has fetched the KV"


@pytest.mark.parametrize(("looks", "transfers"), [(1, 400), (2, 400), (2, 1)])
def test_clients_that_hang_up_are_no_failure(seen: Looks, looks: int, transfers: int) -> None:
    """A load generator was killed: some requests ended between prefill and decode."""
    assert seen.look(nixlTransfers=400) == WELL
    told = seen.looks(looks, nixlTransfers=transfers, nixlExpiredRequests=30)
    assert set(told + seen.looks(10)) == {WELL}


def test_leases_that_go_on_running_out_are_a_failure(seen: Looks) -> None:
    """Nobody gives the requests to a decode."""
    told = seen.looks(5, nixlTransfers=1, nixlExpiredRequests=30)
    assert told[:2] == [WELL] * 2
    assert told[2:] == [Verdict(outcome=Outcome.FAIL, faults=(RUN_OUT,))] * 3


def test_leases_of_a_decode_that_started_anew_are_a_failure(seen: Looks) -> None:
    seen.looks(2, nixlTransfers=50)
    seen.start, seen.decode = "s2", dict.fromkeys(seen.decode, 0.0)
    found = seen.look(nixlTransfers=50, nixlExpiredRequests=3)
    assert found == Verdict(outcome=Outcome.FAIL, faults=(RUN_OUT,))


@pytest.mark.parametrize("first", [True, False])
def test_leases_of_a_decode_that_is_not_heard_are_a_failure(seen: Looks, *, first: bool) -> None:
    """It is frozen, or gone; its leases run out half a minute later, seen before that or after."""
    seen.looks(2, nixlTransfers=50)
    if first:
        assert seen.look(nixlExpiredRequests=3) == WELL
    else:
        seen.prefill["nixlExpiredRequests"] += 3
    found = seen.see({"x-prefill-0": engine("x-prefill-0", **seen.prefill)})
    assert found == Verdict(outcome=Outcome.FAIL, faults=(RUN_OUT,))


def test_a_decode_that_was_let_go_an_hour_ago_is_not_lost(seen: Looks) -> None:
    seen.see({"x-decode-1": engine("x-decode-1", nixlTransfers=5)})
    seen.looks(11, nixlTransfers=50)
    assert seen.look(nixlTransfers=50, nixlExpiredRequests=3) == WELL


def test_leases_beside_transfers_that_fail_count_with_them(seen: Looks) -> None:
    found = seen.look(nixlTransfers=50, nixlExpiredRequests=3, nixlFailedTransfers=1)
    assert found is not None
    assert found.faults == ("pod x-decode-0: transfers fail", RUN_OUT)


def hang_ups() -> list[dict[str, dict[str, float]]]:
    """What real engines counted while clients hung up (captured/README.md), moment by moment."""
    with gzip.open(CAPTURED / "vllm-0.32.0-hang-ups.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        {
            role: {
                name: number.value
                for name, number in facts_of(page, role=role).numbers.items()
                if number.value is not None
            }
            for role, page in row["pages"].items()
        }
        for row in rows
    ]


def test_real_engines_whose_clients_hang_up_are_well() -> None:
    moments, looks = hang_ups(), Looks()
    told = [
        looks.see(
            {f"x-{role}-0": engine(f"x-{role}-0", **numbers) for role, numbers in moment.items()}
        )
        for moment in moments
    ]
    assert set(told[1:]) == {WELL}
    # What it rests on: only who hangs up between the legs leaves a trace, and it is a lease.
    expired = [moment["prefill"]["nixlExpiredRequests"] for moment in moments]
    assert expired == [0, 0, 0, 4, 4]
    finished = [moment["decode"]["requestsFinished"] for moment in moments]
    assert finished == [3] * 5, "hung up is not finished"


def test_failures_without_one_transfer_that_ended_well_are_failures(seen: Looks) -> None:
    found = seen.look(nixlFailedTransfers=1)
    assert found is not None
    assert found.outcome is Outcome.FAIL


def test_a_notification_that_fails_is_one_failure_of_its_own_name() -> None:
    """One in 150, which counted twice would be more than one in a hundred."""
    looks = Looks()
    looks.decode["nixlFailedNotifications"] = 0.0
    looks.look(nixlTransfers=10)
    few = looks.look(nixlTransfers=149, nixlFailedTransfers=1, nixlFailedNotifications=1)
    assert few == WELL
    more = looks.look(nixlTransfers=9, nixlFailedTransfers=3, nixlFailedNotifications=3)
    assert more is not None
    assert more.faults == ("pod x-decode-0: notifications fail",)


def test_one_in_a_thousand_is_no_failure(seen: Looks) -> None:
    assert seen.look(nixlTransfers=1000, nixlFailedTransfers=1) == WELL


def test_it_is_well_again_after_five_good_minutes_more_and_no_sooner(seen: Looks) -> None:
    failed = seen.look(nixlTransfers=20, nixlFailedTransfers=20)
    after = [seen.look(nixlTransfers=20) for _ in range(12)]
    turned = next(i for i, verdict in enumerate(after) if verdict == WELL)
    assert set(after[:turned]) == {failed}
    assert set(after[turned:]) == {WELL}
    assert WINDOW / LOOK < turned <= 2 * WINDOW / LOOK


def test_what_was_told_stays_while_nothing_is_transferred(seen: Looks) -> None:
    failed = seen.look(nixlTransfers=20, nixlFailedTransfers=20)
    assert set(seen.looks(int(HOLD / LOOK) - 1)) == {failed}
    assert seen.look() == Verdict(outcome=Outcome.NO_TRAFFIC)


def test_no_traffic_is_brief_for_an_hour_and_ends_with_the_first_transfer(seen: Looks) -> None:
    told = seen.looks(int(HOLD / LOOK))
    assert set(told[:-1]) == {NOTHING_YET}
    assert told[-1] == Verdict(outcome=Outcome.NO_TRAFFIC)
    assert seen.look(nixlTransfers=1) == WELL


def test_engines_that_are_not_there_yet_are_no_verdict() -> None:
    looks = Looks()
    assert [looks.see({}) for _ in range(4)] == [None] * 4
    assert looks.look(nixlTransfers=0) == NOTHING_YET


def test_the_same_page_seen_twice_counts_once(seen: Looks) -> None:
    page = engine("x-decode-0", age=1.0, nixlTransfers=6000, nixlFailedTransfers=400)
    assert seen.see({"x-decode-0": page}) == WELL
    stuck = engine("x-decode-0", age=LOOK + 1.0, nixlTransfers=9000, nixlFailedTransfers=9000)
    assert seen.see({"x-decode-0": stuck}) == WELL


def test_an_engine_that_started_anew_is_counted_from_zero(seen: Looks) -> None:
    seen.start = "s2"
    seen.decode = {"nixlTransfers": 3.0, "nixlFailedTransfers": 2.0, "requestsFinished": 3.0}
    found = seen.look()
    assert found is not None
    assert found.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "engines",
    [
        {},
        {"x-decode-0": engine("x-decode-0", start=None, nixlTransfers=1)},
        {"x-decode-0": engine("x-decode-0", age=61.0, nixlTransfers=1)},
        {"x-decode-0": engine("x-decode-0")},
        {"x-prefill-0": engine("x-prefill-0", nixlExpiredRequests=0)},
    ],
)
def test_engines_that_tell_nothing_are_waited_for_and_then_not_measured(
    seen: Looks, engines: dict[str, Any]
) -> None:
    assert seen.look(nixlTransfers=10) == WELL
    told = [seen.see(engines) for _ in range(6)]
    assert told[:4] == [WELL] * 4
    assert told[-1] == Verdict(outcome=Outcome.NOT_MEASURED)
    assert seen.look(nixlTransfers=10) == WELL


def test_what_happened_while_nobody_answered_counts_too(seen: Looks) -> None:
    seen.see({})
    found = seen.look(nixlTransfers=1, nixlFailedTransfers=1)
    assert found is not None
    assert found.outcome is Outcome.FAIL


def test_a_number_that_appears_says_nothing_of_before(seen: Looks) -> None:
    seen.prefill["nixlFailedNotifications"] = 900.0
    assert seen.look(nixlTransfers=10) == WELL


def test_engines_that_count_no_transfers_are_seen_by_their_requests() -> None:
    looks = Looks()
    for finished, failed in ((10, 5), (20, 5), (30, 9)):
        numbers = {"requestsFinished": finished, "nixlFailedTransfers": failed}
        found = looks.see({"x-decode-0": engine("x-decode-0", **numbers)})
    assert found == Verdict(outcome=Outcome.FAIL, faults=("pod x-decode-0: transfers fail",))


def test_many_pods_that_fail_are_named_up_to_a_bound() -> None:
    looks = Looks()
    for failed in (0.0, 1.0):
        engines = {
            f"x-decode-{n}": engine(f"x-decode-{n}", nixlTransfers=9, nixlFailedTransfers=failed)
            for n in range(50)
        }
        found = looks.see(engines)
    assert found is not None
    assert len(found.faults) == 8


@pytest.mark.parametrize("share", [0.002, 0.004, 0.008, 0.012, 0.02, 0.1])
def test_failures_around_every_threshold_do_not_flap(share: float) -> None:
    """Ten hours of failures by chance: who fails does so for five minutes at least."""
    chance, looks = random.Random(7), Looks()  # noqa: S311
    told: list[Verdict | None] = []
    for _ in range(600):
        failed = sum(chance.random() < share for _ in range(100))
        told.append(looks.look(nixlTransfers=100 - failed, nixlFailedTransfers=failed))
    spells = [(verdict, len(list(same))) for verdict, same in itertools.groupby(told)]
    assert len(spells) <= 1 + 600 * LOOK / WINDOW
    for verdict, length in spells[:-1]:
        if verdict is not None and verdict.outcome is Outcome.FAIL:
            assert length * LOOK >= WINDOW
