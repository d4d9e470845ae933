"""What happened between two looks at engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.measure import Aged, ControlFacts, EngineFacts, Interval, between
from tests.unit.measure.engines import ELAPSED, STALE, engine, latency, reading, store

LATER = {
    "bytes_read": 10e9,
    "bytes_written": 5e9,
    "get_done": 1000.0,
    "set_done": 500.0,
    "fetch_busy_seconds": 10.4,
    "probed_chunks": 20.0,
    "decision_bypass_recomputecheaper": 3.0,
}


def later(**changes: Any) -> EngineFacts:
    return engine(store=store(LATER), latencies={"request": latency(0, 0, 10, 4)}, **changes)


def happened(first: EngineFacts | None, last: EngineFacts) -> Interval:
    before = None if first is None else reading(first)
    return between(before, reading(last, at=ELAPSED), stale_after=STALE)


def test_what_moved_between_two_looks():
    found = happened(engine(), later())
    assert (found.read, found.writes) == (2e9, 1e9)
    assert found.hits == 180, "probes are no hits"
    assert found.declined == 3
    assert found.spared == 3
    assert found.busy == pytest.approx(0.4)
    assert found.tier_rate == pytest.approx(2e9 / (0.4 / 2)), "two ranks read at once"
    assert found.first_token_seconds == pytest.approx(0.25), "of the ten that came since"
    assert found.hit_tokens == 16_000
    assert found.bytes_per_value == pytest.approx(15e9 / 1500)
    assert found.open_breakers == 0.0
    assert found.age_seconds == 3.0


@pytest.mark.parametrize("why", ["bypassed", "belowmintokens", "modeset", "recomputecheaper"])
def test_hits_that_were_not_loaded_are_counted_whatever_the_reason(why: str):
    counters = {**LATER, "decision_bypass_recomputecheaper": 0.0, f"decision_bypass_{why}": 5.0}
    counters["decision_bypass_nohit"] = 900.0
    assert happened(engine(), replace(later(), store=store(counters))).spared == 5


def test_the_first_look_knows_states_alone():
    found = happened(None, later())
    assert (found.busy, found.open_breakers, found.hit_tokens) == (0.4, 0.0, 16_000)
    for name in ("read", "writes", "hits", "declined", "tier_rate", "first_token_seconds"):
        assert getattr(found, name) is None, name


@pytest.mark.parametrize(
    "changed",
    [
        replace(later(), store=store(LATER, start_id="s2")),
        replace(later(), store=store(LATER, start_id=None)),
        replace(later(), store=store(LATER, age_seconds=3.0 + ELAPSED)),
        replace(later(), store=store({**LATER, "ranks_reporting": 0.0})),
    ],
    ids=["another-start", "no-start", "the-same-look-again", "no-counters"],
)
def test_another_life_or_the_same_look_gives_no_difference(changed: EngineFacts):
    found = happened(engine(), changed)
    for name in ("read", "writes", "hits", "declined", "tier_rate"):
        assert getattr(found, name) is None, name


def test_latencies_are_of_the_engine_s_life_and_not_the_store_s():
    assert happened(engine(), later(start_id="e2")).first_token_seconds is None
    same = later(scrape_age_seconds=3.0 + ELAPSED)
    assert happened(engine(), same).first_token_seconds is None


def test_a_counter_that_goes_back_is_not_known():
    found = happened(engine(), replace(later(), store=store({**LATER, "bytes_read": 1.0})))
    assert found.read is None
    assert found.tier_rate is None
    assert found.writes == 1e9


def test_a_counter_that_never_moved_is_zero_beside_others():
    without = {k: v for k, v in store().counters.items() if k not in {"get_done", "bytes_read"}}
    first = engine(store=ControlFacts(**_fields(counters=without)))
    last = engine(store=ControlFacts(**_fields(counters={**without, "bytes_written": 5e9})))
    found = happened(first, last)
    assert (found.hits, found.read, found.writes) == (0.0, 0.0, 1e9)


def _fields(**changes: Any) -> dict[str, Any]:
    made = store()
    names = ("start_id", "settings", "counters", "recent", "age_seconds", "stale")
    return {name: getattr(made, name) for name in names} | changes


@pytest.mark.parametrize(
    "silent",
    [
        later(hung=True),
        later(up=False),
        replace(later(), store=store(LATER, stale=True)),
        replace(later(), store=store(LATER, age_seconds=None)),
        replace(later(), store=store(LATER, age_seconds=STALE + 1)),
    ],
    ids=["hung", "down", "stale", "of-no-age", "old"],
)
def test_who_cannot_be_believed_says_nothing(silent: EngineFacts):
    found = happened(engine(), silent)
    assert replace(found, age_seconds=None) == Interval(age_seconds=None)


def test_the_age_is_that_of_the_oldest_look_that_counts():
    other = engine("x-prefill-1", store=store(age_seconds=40.0))
    found = between(None, reading(engine(), other), stale_after=STALE)
    assert found.age_seconds == 40.0
    old = engine(store=store(age_seconds=900.0))
    older = engine("x-prefill-1", store=store(age_seconds=1000.0))
    assert between(None, reading(old, older), stale_after=STALE).age_seconds == 900.0
    assert between(None, reading(), stale_after=STALE).age_seconds is None
    assert between(None, reading(engine(hung=True)), stale_after=STALE).age_seconds is None


def test_a_share_that_cannot_be_true_is_not_hidden_in_a_mean():
    odd = engine("x-prefill-1", store=store({"busy_share": 1.5}))
    assert between(None, reading(engine(), odd), stale_after=STALE).busy == 1.5


def test_instances_given_up_are_counted_over_engines_and_may_be_unknown():
    down = engine("x-prefill-1", store=store({"open_breakers": 2.0}))
    assert between(None, reading(engine(), down), stale_after=STALE).open_breakers == 0.5
    silent = {k: v for k, v in store().counters.items() if k != "open_breakers"}
    one = engine(store=ControlFacts(**_fields(counters=silent)))
    assert between(None, reading(one), stale_after=STALE).open_breakers is None


def test_a_stock_engine_tells_of_its_tier_by_its_page():
    first = engine(store=None, numbers=_bytes(5.0, 7.0))
    last = engine(store=None, numbers=_bytes(9.0, 7.0))
    found = happened(first, last)
    assert (found.hits, found.read, found.writes) == (4.0, 4.0, 0.0)
    assert found.busy is None
    assert happened(first, engine(store=None)).hits is None


def _bytes(read: float, written: float) -> dict[str, Aged]:
    return {
        "tierReadBytes": Aged(value=read, age_seconds=3.0),
        "tierWriteBytes": Aged(value=written, age_seconds=3.0),
    }


def test_few_values_say_nothing_of_their_size():
    few = {"bytes_read": 10.0, "bytes_written": 0.0, "get_done": 4.0, "set_done": 4.0}
    found = between(None, reading(engine(store=store(few))), stale_after=STALE)
    assert found.bytes_per_value is None


def test_few_requests_have_no_median_and_two_engines_add_up():
    few = engine(latencies={"request": latency(0, 0, 0, 4 + 5)})
    assert happened(engine(), few).first_token_seconds is None
    first = [engine(f"x-prefill-{n}") for n in range(2)]
    last = [replace(few, pod=facts.pod) for facts in first]
    found = between(reading(*first), reading(*last, at=ELAPSED), stale_after=STALE)
    assert found.first_token_seconds == 0.3, "the lower edge of a bucket without an end"


def test_counts_that_go_back_are_not_believed():
    less = engine(latencies={"request": latency(50, 0, 0, 3)})
    assert happened(engine(), less).first_token_seconds is None


def test_without_a_prefill_role_it_is_the_first_token():
    kinds = {"role": "decode"}
    first = engine(**kinds, latencies={"firstToken": latency(0, 4, 0)})
    last = engine(**kinds, latencies={"firstToken": latency(0, 4, 8), "request": latency(90)})
    assert happened(first, last).first_token_seconds == pytest.approx(0.2)
