"""What readings amount to, and what the tuner makes of them; poisoned ones lead to no decision."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.fit import Numbers, Source
from kvserving_operator.measure import EngineFacts, Knowledge, between, learn, parse, tuner_facts
from kvserving_operator.tuner import Facts, Mode, Reason, Settings, State, decide
from tests.unit.measure.engines import ELAPSED, STALE, engine, reading, recent, store
from tests.unit.measure.test_parsing import PLACES, _has, answer

APPLY = Settings(mode=Mode.APPLY)


class Watch:
    """Readings, one an interval."""

    def __init__(self, **begin: Any) -> None:
        self.knowledge = Knowledge(**begin)
        self.last = None
        self.looks = 0
        self.facts: Facts | None = None

    def see(self, facts: EngineFacts, *, revision: str = "r1") -> Facts | None:
        now = reading(facts, at=self.looks * ELAPSED)
        interval = between(self.last, now, stale_after=STALE)
        self.knowledge = learn(
            self.knowledge,
            interval,
            [facts],
            revision=revision,
            now=now.at,
            tokens_per_value=250.0,
        )
        self.last, self.looks = now, self.looks + 1
        self.facts = tuner_facts(self.knowledge, interval, at=1e9 + now.at, now=now.at)
        return self.facts


def seen(**begin: Any) -> Watch:
    """Twenty-four loads and steps later."""
    watch = Watch(**begin)
    watch.see(engine())
    watch.see(engine(store=store(recent=recent(22))))
    return watch


def test_records_become_the_numbers_of_the_model():
    facts = seen().facts
    assert facts is not None
    assert facts.known.measured
    numbers = facts.known.numbers()
    assert numbers.bandwidth == pytest.approx(10e9)
    assert numbers.tokens_per_second == pytest.approx(50_000)
    assert numbers.engine_fixed_seconds == pytest.approx(0.18)
    assert numbers.request_fixed_seconds == pytest.approx(0.15)
    assert facts.bytes_per_token == pytest.approx(12e9 / 1200 / 250)
    assert (facts.busy, facts.hit_tokens) == (0.4, 16_000)


def test_until_then_the_numbers_of_before_stand_in():
    good = Numbers(tokens_per_second=1.0, bandwidth=2.0)
    facts = Watch(last_good=good).see(engine(store=store(recent=recent(0, 3))))
    assert facts is not None
    assert facts.known.numbers() == good
    assert not facts.known.measured


def test_another_revision_is_measured_anew():
    watch = seen()
    facts = watch.see(engine(store=store(recent=recent(40, 1), start_id="s2")), revision="r2")
    assert facts is not None
    assert not facts.known.measured


def probing(watch: Watch, rate: float, times: int) -> Facts:
    """Intervals without a load, in which two ranks read so many bytes a second together."""
    facts = None
    assert watch.last is not None
    counted = dict(watch.last.carriers["x-prefill-0"].store.counters)  # type: ignore[union-attr]
    for _ in range(times):
        counted["bytes_read"] += rate
        counted["fetch_busy_seconds"] += 2.0
        counted["get_done"] += 100.0
        counted["probed_chunks"] = counted.get("probed_chunks", 0.0) + 100.0
        facts = watch.see(engine(store=store(counted, recent=recent(22))))
    assert facts is not None
    return facts


def test_without_loads_probes_show_the_bandwidth():
    facts = probing(seen(), 3e9, 3)
    assert facts.bandwidth is not None
    assert facts.bandwidth.value == pytest.approx(3e9)
    assert facts.bandwidth.source is Source.MEASURED
    assert facts.known.bandwidth == facts.bandwidth
    assert facts.probed


def test_a_load_shows_it_better_and_a_change_is_seen_at_once():
    watch = seen()
    probing(watch, 1e9, 3)
    facts = probing(watch, 12e9, 1)
    assert facts.bandwidth is not None
    assert facts.bandwidth.high == pytest.approx(12e9)
    assert facts.bandwidth.value == pytest.approx(1e9)
    loaded = watch.see(engine(store=store(recent=recent(34))))
    assert loaded is not None
    assert loaded.bandwidth is not None
    assert loaded.bandwidth.value == pytest.approx(10e9)


def test_a_tier_that_nobody_read_is_forgotten():
    watch = seen(last_good=Numbers(bandwidth=1.0))
    watch.knowledge = watch.knowledge.without_bandwidth()
    known = watch.knowledge.known(0.0)
    assert known.bandwidth is None
    assert known.tokens_per_second is not None


def test_what_nobody_said_is_no_fact():
    interval = between(None, reading(), stale_after=STALE)
    assert tuner_facts(Knowledge(), interval, at=0.0, now=0.0) is None


ODD = st.sampled_from(
    [math.nan, math.inf, -math.inf, -1.0, 1e300, 10**400, None, "x", True, [], {}, 1.5, 2.0**62]
)


def _counters(value: Any) -> dict[str, Any]:
    names = ("busy_share", "bytes_read", "fetch_busy_seconds", "get_done", "ranks_reporting")
    return dict.fromkeys((*names, "open_breakers", "instances"), value)


@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), max_size=6), ODD)
def test_poisoned_facts_never_decide(changes: list[tuple[Any, Any]], counter: Any):
    """Whatever one answer says: a reason, no number that cannot be, and no change at once."""
    watch = seen()
    made = json.loads(json.dumps(answer()))
    made["store"]["startId"] = "s1"
    made["store"]["counters"] |= _counters(counter)
    for path, value in changes:
        inner: Any = made
        for key in path[:-1]:
            inner = inner[key] if _has(inner, key) else {}
        if _has(inner, path[-1]):
            inner[path[-1]] = value
    poisoned = parse("x-prefill-0", made)
    facts = None if poisoned is None else watch.see(poisoned)
    if facts is None:
        return
    outcome = decide(State(), facts, APPLY)
    assert outcome.change is None, outcome.message
    assert outcome.message
    model = facts.known.model(facts.bytes_per_token or 1.0)
    assert model is None or math.isfinite(model.bandwidth)


@pytest.mark.parametrize("share", [1.5, 1e300])
def test_a_share_of_more_than_all_freezes(share: float):
    watch = seen()
    facts = watch.see(engine(store=store({"busy_share": share}, recent=recent(34))))
    assert facts is not None
    outcome = decide(State(), facts, APPLY)
    assert (outcome.change, outcome.reason) == (None, Reason.FACTS_IMPLAUSIBLE)
    assert watch.knowledge.busy == pytest.approx(0.4)


def test_facts_that_grow_old_freeze():
    watch = seen()
    assert watch.facts is not None
    old = replace(watch.facts, age_seconds=STALE + 1)
    assert decide(State(), old, APPLY).reason is Reason.FACTS_STALE
