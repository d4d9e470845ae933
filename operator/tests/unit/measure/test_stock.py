"""What pages of real stock engines amount to; captured/README.md says how they were recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kvserving_operator.fit import Source
from kvserving_operator.measure import (
    Aged,
    EngineFacts,
    Knowledge,
    Reading,
    between,
    learn,
    tuner_facts,
)
from kvserving_operator.tuner import Facts, Knob, Mode, Outcome, Settings, State, decide
from tests.unit.measure.engines import STALE
from tests.unit.measure.stock_pages import looks

ADVISED = Settings(mode=Mode.RECOMMEND, interval_seconds=10.0, stock=True)


class Seen:
    """What is known after looks."""

    def __init__(self, *, copies: int = 1) -> None:
        self.knowledge, self.copies = Knowledge(), copies
        self.last: Reading | None = None
        self.state = State()
        self.facts: Facts | None = None
        self.outcomes: list[Outcome] = []
        self.busy: list[float | None] = []

    def look(self, at: float, facts: EngineFacts) -> Facts | None:
        now = Reading(at=at, carriers={facts.pod: facts})
        interval = between(self.last, now, stale_after=STALE, copies=self.copies)
        self.knowledge = learn(
            self.knowledge, interval, [facts], revision="r", now=at, tokens_per_value=256
        )
        self.last = now
        self.facts = tuner_facts(self.knowledge, interval, at=1e9 + at, now=at)
        if self.facts is not None:
            self.busy.append(self.facts.busy)
            self.outcomes.append(decide(self.state, self.facts, ADVISED))
            self.state = self.outcomes[-1].state
        return self.facts

    def all(self, rows: Iterable[tuple[float, str, EngineFacts]]) -> Facts:
        for at, _, facts in rows:
            self.look(at, facts)
        assert self.facts is not None
        return self.facts


def test_every_number_of_the_model_is_measured_with_count_and_age():
    """The recorded engine computes some 8,000 tokens a second, and s is exactly 2,048."""
    facts = Seen().all(looks("near"))
    assert facts.known.measured
    rate, size = facts.known.tokens_per_second, facts.bytes_per_token
    assert rate is not None
    assert 7_500 < rate.value < 9_500
    assert (rate.samples, size) == (16, 2048.0)
    assert rate.age_seconds is not None
    assert rate.age_seconds > 100, "nothing was computed alone since"
    assert facts.known.bandwidth is not None
    assert 1e8 < facts.known.bandwidth.value < 5e8
    assert facts.known.bandwidth.samples == 19
    assert (facts.hit_tokens, facts.hit_bytes) == (512.0, 512 * 2048.0)


def test_a_tier_that_is_far_off_is_measured_so():
    """20 ms: two EXISTS before a load, and one round trip and a half in it."""
    facts = Seen().all(looks("far"))
    request, bandwidth = facts.known.request_fixed_seconds, facts.known.bandwidth
    engine = facts.known.engine_fixed_seconds
    assert request is not None
    assert bandwidth is not None
    assert engine is not None
    assert request.value == pytest.approx(0.043, rel=0.05)
    assert bandwidth.value == pytest.approx(2.3e7, rel=0.05)
    assert 0.007 < engine.value < 0.013


def test_what_a_load_costs_is_what_vllm_saw_of_it():
    """Te, Tw and s·n/B together are the seconds of a prompt that was hit: nothing is left out."""
    rows = list(looks("far"))
    facts = Seen().all(rows)
    model = facts.known.model(2048.0)
    assert model is not None
    loads = [facts for _, did, facts in rows if did == "load"]
    first, last = loads[0], loads[-1]
    prompts = _grown(first, last, "prefills")
    seen = _grown(first, last, "prefillSeconds") / prompts
    assert model.fixed_seconds + 512 * 2048 / model.bandwidth == pytest.approx(seen, rel=0.05)


def _grown(first: EngineFacts, last: EngineFacts, name: str) -> float:
    before, after = first.number(name), last.number(name)
    assert before is not None
    assert after is not None
    return after - before


def test_hits_that_cost_more_than_computing_ask_for_a_threshold():
    seen = Seen()
    seen.all(looks("far"))
    [told] = [o for o in seen.outcomes if o.change is not None]
    assert told.recommend
    assert told.change is not None
    assert (told.change.knob, told.change.restarts) == (Knob.MIN_TOKENS, True)
    assert isinstance(told.change.value, float)
    assert 1_024 <= told.change.value <= 1_536
    [entry] = seen.state.history
    assert 0.2 < entry.predicted < 0.5


def test_hits_that_cost_less_ask_for_nothing():
    seen = Seen()
    seen.all(looks("near"))
    assert [o.change for o in seen.outcomes if o.change is not None] == []


def test_u_is_what_prompts_took_of_the_time():
    seen = Seen()
    seen.all(looks("near"))
    assert seen.busy[0] is None, "one look alone says nothing"
    shares = [share for share in seen.busy[1:] if share is not None]
    assert len(shares) == len(seen.busy) - 1
    assert max(shares) < 0.35
    assert shares[-1] == 0.0, "in the last interval nothing was asked"


def _changed(facts: EngineFacts, **numbers: float | None) -> EngineFacts:
    kept = {name: found for name, found in facts.numbers.items() if name not in numbers}
    new = {n: Aged(value=v, age_seconds=0.0) for n, v in numbers.items() if v is not None}
    return replace(facts, numbers={**kept, **new})


def _waiting(facts: EngineFacts) -> EngineFacts:
    """As if prompts had waited for a tenth of their time: then some shared steps."""
    return _changed(facts, queueSeconds=0.1 * (facts.number("prefillSeconds") or 0.0))


def test_prompts_that_may_have_shared_steps_give_no_time_of_the_engine():
    """But B, which LMCache's own timer shows, and Tw; and u by the work, once R is known."""
    known = Seen().all((at, did, _waiting(facts)) for at, did, facts in looks("far")).known
    assert known.tokens_per_second is None
    assert known.engine_fixed_seconds is None
    assert known.bandwidth is not None
    assert known.request_fixed_seconds is not None
    seen = Seen()
    rows = list(looks("far"))
    computed = [row for row in rows if row[1] in ("store", "compute")]
    alone = seen.all(computed)
    assert alone.known.tokens_per_second is not None
    assert alone.known.bandwidth is None
    base = rows[len(computed)][2]
    seen.look(rows[len(computed)][0], base)
    at, _, facts = rows[len(computed) + 1]
    busy = Seen.look(seen, at, _changed(facts, queueSeconds=9.0))
    assert busy is not None
    assert busy.busy is not None
    # 360 tokens at R, and twenty loads of .046 s.
    held = 360 / alone.known.tokens_per_second.value + 20 * 0.0465
    assert busy.busy == pytest.approx(held / 10, rel=0.1)


@pytest.mark.parametrize(
    "gone", ["prefillSeconds", "queueSeconds", "computedTokens", "externalPrefixCacheHits"]
)
def test_what_vllm_does_not_say_is_not_taken_for_zero(gone: str):
    rows = ((at, did, _changed(facts, **{gone: None})) for at, did, facts in looks("far"))
    known = Seen().all(rows).known
    assert known.engine_fixed_seconds is None
    assert known.tokens_per_second is None
    assert known.bandwidth is not None


@pytest.mark.parametrize(
    "gone", ["tierReads", "tierReadMs", "tierReadBytes", "lookups", "lookupSeconds"]
)
def test_what_lmcache_does_not_say_is_not_taken_for_zero(gone: str):
    rows = ((at, did, _changed(facts, **{gone: None})) for at, did, facts in looks("far"))
    seen = Seen()
    known = seen.all(rows).known
    assert (known.bandwidth, known.engine_fixed_seconds, known.request_fixed_seconds) == (None,) * 3
    assert known.tokens_per_second is not None
    assert known.tokens_per_second.source is Source.MEASURED
    assert not any(outcome.change for outcome in seen.outcomes)


def test_without_a_number_of_prompts_nothing_can_be_told_apart():
    rows = ((at, did, _changed(facts, prefills=None)) for at, did, facts in looks("far"))
    known = Seen().all(rows).known
    assert not any((known.tokens_per_second, known.bandwidth, known.engine_fixed_seconds))


def test_an_engine_that_decodes_as_well_gives_no_times():
    """Its steps hold others' tokens, so seconds of a prompt are not those of its own."""
    known = Seen().all(looks("far", role="decode")).known
    assert not any((known.tokens_per_second, known.bandwidth, known.engine_fixed_seconds))


def test_another_life_of_the_engine_is_no_difference():
    seen = Seen()
    for number, (at, _, facts) in enumerate(looks("far")):
        seen.look(at, replace(facts, start_id=f"e{number}"))
    assert seen.facts is not None
    assert not any((seen.facts.known.tokens_per_second, seen.facts.known.bandwidth))


def test_ranks_with_kv_of_their_own_read_at_once():
    """Their bytes and their seconds are sums over the ranks on the page, as are stored tokens."""
    one = Seen().all(looks("far")).known.bandwidth
    doubled = [
        (
            at,
            did,
            _changed(
                facts,
                **{
                    name: 2 * value
                    for name in (
                        "tierReads", "tierReadMs", "tierReadBytes", "tierWriteBytes",
                        "storedTokens", "retrieves", "retrievedTokens", "retrieveSeconds",
                    )
                    if (value := facts.number(name)) is not None
                },
            ),
        )
        for at, did, facts in looks("far")
    ]  # fmt: skip
    two = Seen(copies=2).all(doubled)
    assert one is not None
    assert two.known.bandwidth is not None
    assert two.known.bandwidth.value == pytest.approx(2 * one.value)
    assert (two.bytes_per_token, two.hit_bytes) == (4096.0, 2 * 512 * 2048.0)
    assert two.hit_tokens == 512.0
