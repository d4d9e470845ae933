from __future__ import annotations

from dataclasses import replace

from kvserving_agent.facts import Answer, Sample, Snapshot
from kvserving_agent.progress import HUNG_SCRAPES, Stall, follow
from tests.unit.agent.test_facts import NOW, STALE, WELL, render

WAITING: dict[str, float | None] = {"waiting": 2, "running": 1, "promptTokens": 9}


def after(scrapes: int, values: dict[str, float | None] = WAITING) -> Stall | None:
    stall = None
    for scrape in range(scrapes):
        stall = follow(stall, values, scrape * 10.0)
    return stall


def known(stall: Stall | None, values: dict[str, float | None] = WAITING) -> Snapshot:
    return replace(WELL, sample=Sample(NOW - 4, values), stall=stall)


def test_hung_when_requests_wait_and_nothing_moves_for_long_enough() -> None:
    almost, hung = after(HUNG_SCRAPES), after(HUNG_SCRAPES + 1)
    assert almost is not None
    assert hung is not None
    assert (almost.hung, hung.hung) == (False, True)
    assert hung.since == 0.0


def test_whatever_gets_done_begins_it_anew() -> None:
    hung = after(HUNG_SCRAPES + 1)
    for name in ("promptTokens", "generationTokens", "requestsFinished"):
        moved = follow(hung, {**WAITING, name: 10}, 99.0)
        assert moved is not None
        assert (moved.hung, moved.since) == (False, 99.0)


def test_hung_with_what_runs_alone_for_who_comes_later_is_in_no_number() -> None:
    alone: dict[str, float | None] = {**WAITING, "waiting": 0}
    hung = after(HUNG_SCRAPES + 1, alone)
    assert hung is not None
    assert hung.hung


def test_a_long_prompt_fills_the_cache_and_that_is_progress() -> None:
    stall = None
    for scrape in range(3 * HUNG_SCRAPES):
        filling = {**WAITING, "waiting": 0, "kvCacheUsage": scrape / 100}
        stall = follow(stall, filling, scrape * 10.0)
    assert stall is not None
    assert not stall.hung


def test_an_idle_engine_and_an_unreadable_one_are_not_hung() -> None:
    hung = after(HUNG_SCRAPES + 1)
    for idle in (0, None):
        assert follow(hung, {**WAITING, "waiting": idle, "running": 0}, 99.0) is None
        assert follow(hung, {**WAITING, "waiting": idle, "running": None}, 99.0) is None
    assert follow(hung, {"waiting": 2}, 99.0) is None


def test_facts_tell_hung_from_well_and_both_from_unknown() -> None:
    stall = Stall((9, None, None), NOW - 84, HUNG_SCRAPES)

    def told(snapshot: Snapshot, now: float = NOW) -> tuple[object, object]:
        engine = render(snapshot, now)["engine"]
        return engine["hung"], engine["noProgressSeconds"]

    assert told(known(stall)) == (True, 80.0)
    assert told(known(replace(stall, scrapes=1))) == (False, 80.0)
    assert told(known(None, {"waiting": 0})) == (False, None)
    assert told(known(None, {"waiting": None})) == (None, None)
    assert told(known(None, {"waiting": 0, "running": 1})) == (None, None)
    assert told(replace(known(stall), health=Answer(NOW, good=False))) == (None, None)
    assert told(known(stall), NOW + STALE) == (None, None)
