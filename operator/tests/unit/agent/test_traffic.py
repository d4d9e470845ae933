"""Whether anything is under way, by what scrapes show one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from kvserving_agent.traffic import Traffic, follow

IDLE = {"running": 0, "waiting": 0, "requestsFinished": 3}


def seen(*scrapes: tuple[float, dict[str, Any]]) -> Traffic:
    traffic = None
    for at, values in scrapes:
        traffic = follow(traffic, values, at)
    assert traffic is not None
    return traffic


def test_idle_counts_from_the_first_idle_scrape_after_the_last_busy_one() -> None:
    busy = {"running": 0, "waiting": 1, "requestsFinished": 3}
    assert seen((1, IDLE), (2, IDLE), (3, IDLE)).idle_since == 1
    assert seen((1, IDLE), (2, busy)).idle_since is None
    assert seen((1, IDLE), (2, busy), (3, IDLE), (4, IDLE)).idle_since == 3


def test_a_request_that_came_and_went_between_two_scrapes_was_not_idle() -> None:
    traffic = seen((1, IDLE), (2, {**IDLE, "requestsFinished": 4}))
    assert (traffic.idle_since, traffic.finished_at) == (2, 2)


def test_the_last_request_ended_no_later_than_it_was_seen() -> None:
    assert seen((1, {**IDLE, "requestsFinished": 0})).finished_at is None
    assert seen((1, {**IDLE, "requestsFinished": 0}), (5, IDLE), (9, IDLE)).finished_at == 5


def test_what_ended_before_anybody_looked_may_have_ended_just_now() -> None:
    assert seen((7, IDLE), (9, IDLE)).finished_at == 7


def test_a_page_without_the_count_changes_nothing_of_it() -> None:
    lost = {"running": 0, "waiting": 0, "requestsFinished": None}
    assert seen((1, IDLE), (2, lost), (3, IDLE)) == Traffic(1, 3, 1)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"running": None, "waiting": None, "requestsFinished": 0},
        {"running": None, "waiting": 0, "promptTokens": 0},
    ],
)
def test_no_gauges_are_idle_on_an_engine_that_never_served(values: dict[str, Any]) -> None:
    assert seen((1, values)).idle_since == 1


@pytest.mark.parametrize(
    "values",
    [
        {"running": None, "waiting": None, "promptTokens": 5},
        {"running": None, "waiting": 0, "requestsFinished": 1},
        {"running": 1, "waiting": None},
    ],
)
def test_no_gauges_are_not_idle_on_one_that_has(values: dict[str, Any]) -> None:
    assert seen((1, values)).idle_since is None
