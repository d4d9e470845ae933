"""How far an engine is with letting go, by what is known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvserving_agent.drain import Limits, Phase, Progress, Reason, progress
from kvserving_agent.facts import Answer, Sample, Snapshot
from kvserving_agent.traffic import Traffic
from tests.unit.agent.test_facts import WELL

SINCE = 1000.0
STALE = 20.0
LIMITS = Limits(timeout=120.0, lease=50.0)


def at(
    now: float,
    *,
    idle_since: float | None = None,
    finished_at: float | None = None,
    sampled: float | None = None,
    limits: Limits = LIMITS,
) -> Progress:
    """A healthy engine that drains since SINCE."""
    known = replace(
        WELL,
        health=Answer(now - 1, good=True),
        sample=Sample(now - 0.5 if sampled is None else sampled, {}),
        traffic=Traffic(idle_since, 1, finished_at),
        draining=SINCE,
    )
    return progress(known, now, limits, STALE)


@pytest.mark.parametrize(
    ("seconds", "idle_since", "phase"),
    [
        (3, 900.0, Phase.SETTLING),
        (5.4, 900.0, Phase.QUIET),
        (5.6, 900.0, Phase.DONE),
        (7.4, 1005.0, Phase.QUIET),
        (7.6, 1005.0, Phase.DONE),
        (60, None, Phase.QUIET),
        (119, None, Phase.QUIET),
        (120, None, Phase.DONE),
    ],
)
def test_quiet_is_waited_for_with_a_bound(
    seconds: float, idle_since: float | None, phase: Phase
) -> None:
    found = at(SINCE + seconds, idle_since=idle_since)
    assert found.phase is phase
    reason = Reason.TIMEOUT if seconds == 120 else Reason.QUIET
    assert found.reason is (reason if phase is Phase.DONE else None)


def test_a_page_from_before_routers_knew_does_not_count() -> None:
    assert at(SINCE + 30, idle_since=900.0, sampled=SINCE + 4).phase is Phase.QUIET


def test_kv_is_kept_for_the_lease_after_the_last_request() -> None:
    found = at(SINCE + 20, idle_since=SINCE + 9, finished_at=SINCE + 9)
    assert (found.phase, found.lease_left) == (Phase.LEASE, 39.0)
    assert at(SINCE + 58.9, idle_since=SINCE + 9, finished_at=SINCE + 9).phase is Phase.LEASE
    assert at(SINCE + 59, idle_since=SINCE + 9, finished_at=SINCE + 9).phase is Phase.DONE
    assert at(SINCE + 20, idle_since=SINCE + 9, finished_at=SINCE - 50).phase is Phase.DONE
    none = Limits(timeout=120.0)
    assert at(SINCE + 20, idle_since=900.0, finished_at=SINCE + 19, limits=none).phase is Phase.DONE


def test_kv_that_was_fetched_needs_no_lease() -> None:
    def with_usage(usage: float | None, idle_since: float | None) -> Progress:
        known = replace(
            WELL,
            health=Answer(SINCE + 19, good=True),
            sample=Sample(SINCE + 19, {"kvCacheUsage": usage}),
            traffic=Traffic(idle_since, 1, SINCE + 9),
            draining=SINCE,
        )
        return progress(known, SINCE + 20, LIMITS, STALE)

    assert with_usage(0, SINCE + 9).phase is Phase.DONE
    assert with_usage(0.001, SINCE + 9).phase is Phase.LEASE
    assert with_usage(None, SINCE + 9).phase is Phase.LEASE
    assert with_usage(0, None).phase is Phase.QUIET


def test_timeout_and_lease_together_are_the_end() -> None:
    late = at(SINCE + 169, finished_at=SINCE + 168)
    assert (late.phase, late.lease_left) == (Phase.LEASE, 1.0)
    over = at(SINCE + 170, finished_at=SINCE + 169)
    assert (over.phase, over.reason) == (Phase.DONE, Reason.TIMEOUT)


def test_there_is_nothing_to_wait_for_in_an_engine_that_is_down_or_silent() -> None:
    down = Snapshot(health=Answer(SINCE, good=False), draining=SINCE)
    silent = replace(WELL, health=Answer(SINCE - STALE - 1, good=True), draining=SINCE)
    never = Snapshot(begun=SINCE - STALE - 1, draining=SINCE)
    found = [progress(known, SINCE, LIMITS, STALE) for known in (down, silent, never)]
    assert {each.phase for each in found} == {Phase.DONE}
    expected = [Reason.ENGINE_DOWN, Reason.ENGINE_SILENT, Reason.ENGINE_SILENT]
    assert [each.reason for each in found] == expected


def test_an_agent_that_has_just_started_knows_nothing_yet_and_waits() -> None:
    fresh = Snapshot(begun=SINCE + 30, draining=SINCE)
    assert progress(fresh, SINCE + 31, LIMITS, STALE).phase is Phase.QUIET
