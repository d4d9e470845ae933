"""Lookups of the scheduler: probed, decided about, fetched; overdue and dropped ones end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store.inquiry import Inquiries, Inquiry, Prompt, Step
from kvserving_sharded_store.lookup import async_answer, cumulative_lengths
from kvserving_sharded_store.ownership import Shard
from kvserving_sharded_store.policy import Decision, Mode, Reason

CHUNK = 16


class Sent:
    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def probe(self, name: str, serial: int, prompt: Prompt, seconds: float) -> None:
        self.said.append(("probe", name, serial, len(prompt.hashes)))

    def fetch(self, name: str, serial: int, tokens: int, seconds: float) -> None:
        self.said.append(("fetch", name, serial, tokens))

    def drop(self, name: str, serial: int) -> None:
        self.said.append(("drop", name, serial))


class Case:
    def __init__(self, ranks: int = 2, mode: Mode = Mode.ASYNC) -> None:
        self.clock = 100.0
        self.sent = Sent()
        self.mode = mode
        self.asked: list[int] = []
        self.done: list[Inquiry] = []
        self.all = Inquiries(
            ranks=ranks,
            send=self.sent,
            decide=self.decide,
            lookup_seconds=3.0,
            load_seconds=lambda _tokens: 10.0,
            finished=self.done.append,
            now=lambda: self.clock,
        )

    def decide(self, name: str, tokens: int) -> Decision:
        self.asked.append(tokens)
        return Decision(self.mode if tokens else Mode.BYPASS, Reason.FORCED, tokens)

    def begin(self, chunks: int = 4, computed: int = 0) -> Inquiry:
        hashes = [bytes([n]) * 32 for n in range(chunks)]
        return self.all.begin("r", Prompt(hashes, CHUNK, {}, computed))


def test_a_lookup_keeps_when_it_was_decided_and_what_came_from_instances() -> None:
    case = Case()
    asked = case.begin()
    assert (asked.name, asked.decided, asked.read) == ("r", None, 0)
    case.clock += 0.5
    for rank in range(2):
        case.all.answered("r", asked.serial, rank, 64, here=False)
    assert asked.decided == 100.5
    case.all.answered("r", asked.serial, 0, 64, here=True, read=4_096)
    case.all.answered("r", asked.serial, 0, 64, here=True, read=0)
    case.all.answered("r", asked.serial, 1, 64, here=True, read=1_024)
    assert case.done == [asked]
    assert asked.read == 5_120


def test_what_is_promised_is_the_least_that_has_arrived() -> None:
    case = Case()
    asked = case.begin()
    case.all.answered("r", asked.serial, 0, 64, here=False)
    assert case.all.get("r") is asked
    assert asked.step is Step.PROBING
    case.all.answered("r", asked.serial, 1, 48, here=False)
    assert case.sent.said[-1] == ("fetch", "r", asked.serial, 48)
    case.all.answered("r", asked.serial, 0, 48, here=True)
    case.all.answered("r", asked.serial, 1, 16, here=True)
    assert (asked.step, asked.tokens, asked.found) == (Step.DONE, 16, 48)
    assert case.done == [asked]


def test_nothing_is_fetched_for_a_hit_that_is_recomputed() -> None:
    case = Case(mode=Mode.BYPASS)
    asked = case.begin(computed=16)
    for rank in range(2):
        case.all.answered("r", asked.serial, rank, 64, here=False)
    assert case.asked == [48]  # what the engine has by itself is not decided about
    assert [said[0] for said in case.sent.said] == ["probe", "drop"]
    assert (asked.step, asked.tokens, asked.found) == (Step.DONE, 0, 64)


@pytest.mark.parametrize("here", [False, True])
def test_a_rank_that_does_not_answer_costs_one_deadline(here: bool) -> None:
    case = Case()
    asked = case.begin()
    if here:
        for rank in range(2):
            case.all.answered("r", asked.serial, rank, 64, here=False)
    case.all.answered("r", asked.serial, 0, 64, here=here)
    case.clock += 10.2 if here else 3.2
    assert case.all.get("r") is asked
    assert asked.step is not Step.DONE
    case.clock += 0.1
    case.all.get("r")
    assert (asked.step, asked.tokens, asked.late) == (Step.DONE, 0, True)
    assert case.sent.said[-1] == ("drop", "r", asked.serial)
    # What comes later counts for nothing, and changes nothing.
    case.all.answered("r", asked.serial, 1, 64, here=here)
    assert asked.tokens == 0


def test_answers_to_an_earlier_lookup_of_the_name_do_not_count() -> None:
    case = Case()
    old = case.begin()
    case.all.answered("r", old.serial, 0, 64, here=False)
    new = case.begin()
    assert ("drop", "r", old.serial) in case.sent.said
    case.all.answered("r", old.serial, 1, 64, here=False)
    case.all.answered("r", new.serial, 0, 32, here=False)
    assert new.step is Step.PROBING
    case.all.answered("r", new.serial, 1, 32, here=False)
    assert new.step is Step.FETCHING


def test_a_dropped_request_is_dropped_everywhere_and_owes_nothing() -> None:
    case = Case()
    asked = case.begin(computed=16)
    for rank in range(2):
        case.all.answered("r", asked.serial, rank, 64, here=False)
    assert case.all.owed_tokens == 48
    case.all.drop("r")
    assert case.sent.said[-1] == ("drop", "r", asked.serial)
    assert (case.all.owed_tokens, len(case.all)) == (0, 0)
    case.all.drop("r")
    assert case.sent.said.count(("drop", "r", asked.serial)) == 1


def test_what_was_brought_for_a_request_that_is_never_run_is_given_back_when_it_ends() -> None:
    case = Case()
    asked = case.begin()
    for here in (False, True):
        for rank in range(2):
            case.all.answered("r", asked.serial, rank, 64, here=here)
    case.all.taken("r")
    assert case.all.get("r") is None
    assert case.sent.said[-1][0] == "fetch", "its load may be under way"
    case.all.drop("r")
    assert case.sent.said[-1] == ("drop", "r", asked.serial)
    case.all.drop("r")
    assert case.sent.said.count(("drop", "r", asked.serial)) == 1
    # Nothing was brought for a hit that is recomputed.
    case.mode = Mode.BYPASS
    other = case.begin()
    for rank in range(2):
        case.all.answered("r", other.serial, rank, 64, here=False)
    case.all.taken("r")
    case.all.drop("r")
    assert case.sent.said.count(("drop", "r", other.serial)) == 1


def test_a_prompt_without_a_whole_chunk_is_a_miss_at_once() -> None:
    case = Case()
    asked = case.begin(chunks=0)
    assert (asked.step, asked.tokens, case.sent.said) == (Step.DONE, 0, [])


@given(
    st.integers(1, 5),
    st.lists(st.booleans(), max_size=24),
    st.lists(st.booleans(), min_size=24, max_size=24),
)
def test_the_promise_is_the_longest_prefix_that_arrived_on_all_ranks(
    world: int, present: list[bool], arrives: list[bool]
) -> None:
    case = Case(ranks=world)
    total = len(present)
    asked = case.begin(chunks=total)
    shards = [Shard(rank, world) for rank in range(world)]

    def answer(shard: Shard, chunks: int, there: list[bool]) -> int:
        owned = list(shard.owned(chunks))
        vector = cumulative_lengths(shard, chunks * CHUNK, CHUNK)
        leading = next((i for i, chunk in enumerate(owned) if not there[chunk]), len(owned))
        return async_answer(vector, leading)

    def prefix(there: list[bool]) -> int:
        return next((i for i, each in enumerate(there) if not each), len(there))

    for shard in shards:
        case.all.answered("r", asked.serial, shard.rank, answer(shard, total, present), here=False)
    found = prefix(present)
    assert asked.found == found * CHUNK
    if not found:
        assert asked.step is Step.DONE
        return
    there = [p and a for p, a in zip(present, arrives, strict=False)][:found]
    for shard in shards:
        case.all.answered("r", asked.serial, shard.rank, answer(shard, found, there), here=True)
    assert (asked.step, asked.tokens) == (Step.DONE, prefix(there) * CHUNK)
