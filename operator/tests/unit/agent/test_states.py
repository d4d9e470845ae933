"""The rings of the store's state: what the fit reads of them is what the store recorded."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from kvserving_sharded_store.recent import Arrival, Recent

from kvserving_agent import states, store
from kvserving_agent.facts import Sample
from kvserving_agent.latency import Histogram
from kvserving_agent.series import VLLM_NUMBERS
from kvserving_operator.fit import parse_recent
from tests.unit.agent.test_facts import NOW, STALE, WELL, render
from tests.unit.agent.test_store import body


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def recorded(loads: int, steps: int) -> dict[str, Any]:
    """The rings of a store that had so many loads and large steps."""
    clock = Clock()
    recent = Recent(clock)
    for number in range(loads):
        began = clock.now
        arrived = began + 0.1234567
        recent.arrived(f"r{number}", Arrival(16_390, 793_276_000, began, began + 0.01, arrived))
        clock.now = arrived + 0.001
        recent.taken(f"r{number}")
        recent.stepped(300)
        clock.now += 0.1823456
        recent.ended()
    for _ in range(steps):
        recent.stepped(8192)
        clock.now += 0.1569
        recent.ended()
    rings: dict[str, Any] = json.loads(json.dumps(recent.rings()))
    return rings


def shown(recent: object, now: float = NOW) -> dict[str, Any]:
    known = replace(WELL, store=store.parse(body(recent=recent), NOW - 3))
    facts: dict[str, Any] = json.loads(json.dumps(render(known, now, stores=True), allow_nan=False))
    return facts


def test_the_fit_reads_the_newest_rows_as_the_store_wrote_them() -> None:
    given = recorded(64, 64)
    whole, passed = parse_recent(given), parse_recent(shown(given)["store"]["recent"])
    assert passed.dropped == 0
    assert [r.serial for r in passed.loads] == list(range(52, 64))
    assert [r.serial for r in passed.steps] == list(range(58, 64))
    for ours, theirs in zip(passed.loads, whole.loads[-12:], strict=True):
        assert ours.bytes_read == theirs.bytes_read
        assert math.isclose(ours.step_seconds, theirs.step_seconds, rel_tol=1e-3)
        assert math.isclose(ours.served_seconds, theirs.served_seconds, rel_tol=1e-3)
        assert ours.notice_seconds is not None


def test_a_busy_engine_s_notice_is_null_and_not_zero() -> None:
    given = recorded(1, 0)
    given["loads"]["rows"][0][6] = None
    (load,) = parse_recent(shown(given)["store"]["recent"]).loads
    assert load.notice_seconds is None


@pytest.mark.parametrize(
    "bad", [None, 3, [], {}, {"loads": 3}, {"loads": {"fields": ["a"]}}, {"loads": {"rows": []}}]
)
def test_no_rings_are_null(bad: object) -> None:
    assert shown(bad)["store"]["recent"] is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1, True, "3", [3], 10**400])
def test_a_row_with_a_bad_number_is_left_out_and_its_neighbours_are_not(bad: object) -> None:
    given = recorded(3, 0)
    given["loads"]["rows"][1][4] = bad
    assert [r.serial for r in parse_recent(shown(given)["store"]["recent"]).loads] == [0, 2]


def test_hostile_rings_stay_small() -> None:
    names = {"fields": ["x"], "rows": [[i] for i in range(10_000)]}
    wide = {"fields": ["x"] * 1000, "rows": [[1] * 1000]}
    facts = shown({"loads": names, "steps": wide, "other": names})
    assert list(facts["store"]["recent"]) == ["loads"]
    assert len(facts["store"]["recent"]["loads"]["rows"]) == states.KEPT_ROWS["loads"]


def test_rows_of_unknown_age_have_none_and_new_ones_never_look_younger() -> None:
    first = store.parse(body(recent=recorded(3, 0)), 100.0)
    same = states.dated(first, store.parse(body(recent=recorded(3, 0)), 110.0))
    more = states.dated(same, store.parse(body(recent=recorded(4, 0)), 120.0))
    later = states.dated(more, store.parse(body(recent=recorded(4, 0)), 130.0))
    other = states.dated(later, store.parse(body(recent=recorded(5, 0), startId="s2"), 140.0))
    ages = []
    for state in (first, same, more, later, other):
        recent = render(replace(WELL, store=state), 200.0, stores=True)["store"]["recent"]
        ages.append(recent["loads"]["newestAgeSeconds"])
    assert ages == [None, None, 90.0, 90.0, None]


def test_an_old_state_is_stale_and_not_calm() -> None:
    assert shown(None)["store"]["stale"] is False
    assert shown(None, NOW + STALE)["store"]["stale"] is True
    assert render(WELL, NOW + STALE)["scrape"]["stale"] is True


def test_facts_of_a_prefill_engine_with_a_store_have_about_three_kilobytes() -> None:
    """After ten days: every counter counted, every ring full, latencies over a dozen buckets."""
    decisions = ("async_loadcheaper", "bypass_recomputecheaper", "bypass_tooshort", "sync_pinned")
    names = [*store._STORE, *(f"decision_{name}" for name in decisions)]
    counters = {
        **dict.fromkeys([*names, *(f"other_{i}" for i in range(40))], 1_234_567.0),
        "busy_share": 0.234567,
        "fetch_busy_seconds": 123_456.789012,
        "decision_load_seconds": 123_456.789012,
        "bytes_read": 0.8e15,
        "bytes_written": 0.8e15,
    }
    state = store.parse(body(recent=recorded(64, 64), counters=counters), NOW - 3)
    edges = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
    latencies = {"request": Histogram(edges, (123_456,) * 12, 1_234_567.891)}
    sample = Sample(NOW - 4, dict.fromkeys(VLLM_NUMBERS, 10**9), latencies)
    facts = render(replace(WELL, store=state, sample=sample), stores=True)
    assert set(facts["store"]["counters"]) == {*names, "decision_load_seconds"}
    assert 2500 < len(json.dumps(facts, separators=(",", ":"))) < 3400
    assert len(json.dumps(facts["store"]["recent"], separators=(",", ":"))) < 1100
