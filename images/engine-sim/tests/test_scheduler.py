from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kvserving_engine_sim.kv.model import Sampling
from kvserving_engine_sim.scheduler.blocks import BlockPool, extend_hashes
from kvserving_engine_sim.scheduler.external import Hold, Match, Sources
from kvserving_engine_sim.scheduler.request import Finish, Phase, Request
from kvserving_engine_sim.scheduler.scheduler import Limits, Scheduler
from kvserving_engine_sim.transfer_config import Kind
from kvserving_engine_sim.workers import messages

SIZE = 16


def request(name: str, tokens: int = 40, *, seed: int = 0, **options: Any) -> Request:
    prompt = np.random.default_rng(seed).integers(0, 256, tokens).astype(np.uint16)
    return Request(name, prompt, options.pop("max_tokens", 8), Sampling(), **options)


class Found:
    """A source that has a fixed number of tokens of every prompt."""

    def __init__(self, kind: Kind, tokens: int | None, *, background: bool = False) -> None:
        self.kind = kind
        self.tokens = tokens
        self.background = background
        self.told: list[tuple[str, int]] = []
        self.attached: list[str] = []

    def match(self, request: Request, local: int) -> Match | None:
        if self.tokens is None:
            return None
        found = self.tokens - local
        return Match(found, self.background, self.kind) if found > 0 else Match()

    def admitted(self, request: Request, match: Match) -> None:
        self.told.append((request.request_id, match.tokens))

    def attach(self, request: Request, sequence: messages.Sequence) -> None:
        self.attached.append(request.request_id)

    def rolled_back(self, request: Request) -> None:
        self.told.append((request.request_id, -request.computed))

    def finished(self, request: Request, finish: Finish) -> Hold | None:
        return None

    def stepped(self, tokens: int) -> None:
        pass

    def stale_lookups(self) -> list[str]:
        return []


def scheduler(
    *sources: Found, blocks: int = 64, budget: int = 1000, seats: int = 8
) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(blocks)
    limits = Limits(
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        block_size=SIZE,
        tokens_per_second=1000,
        inter_token_seconds=0.01,
    )
    return Scheduler(limits, pool, Sources(sources)), pool


def run(planner: Scheduler, requests: dict[str, Request], step: messages.Step) -> None:
    """What the core does after a step in which nothing went wrong."""
    for sequence in step.sequences:
        found = requests[sequence.request_id]
        planner.computed(found, sequence)
        if sequence.sample:
            found.output.append(65)


def test_hashes_name_prefixes() -> None:
    tokens = np.arange(64, dtype=np.uint16)
    first: list[bytes] = []
    extend_hashes(first, tokens, SIZE, 4)
    other = tokens.copy()
    other[20] += 1
    second: list[bytes] = []
    extend_hashes(second, other, SIZE, 4)
    assert len(set(first)) == 4
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])


def test_blocks_are_shared_kept_and_evicted_by_age() -> None:
    pool = BlockPool(4)
    hashes = [bytes([n]) for n in range(4)]
    blocks = pool.allocate(3)
    for block, digest in zip(blocks, hashes, strict=False):
        pool.publish(block, digest)
    pool.take(blocks[:1])
    pool.release(blocks)
    assert pool.free == 3
    assert pool.match(hashes) == blocks
    taken = pool.allocate(2)
    # The unused block goes first, then the end of the prefix.
    assert taken == [3, blocks[2]]
    assert pool.match(hashes) == blocks[:2]
    assert not pool.reset()
    pool.release([*taken, blocks[0]])
    assert pool.reset()
    assert pool.match(hashes) == []


def test_a_prompt_is_computed_in_chunks_and_takes_its_time() -> None:
    planner, _ = scheduler(budget=30)
    asked = {"a": request("a", 70)}
    planner.add(asked["a"])
    counts, seconds = [], []
    for _ in range(4):
        step = planner.schedule(1.0)
        counts.append([len(s.tokens) for s in step.sequences])
        seconds.append(step.seconds)
        run(planner, asked, step)
    assert counts == [[30], [30], [10], [1]]
    assert seconds == pytest.approx([0.03, 0.03, 0.01, 0.01])
    assert asked["a"].output == [65, 65]


def test_seats_and_order_of_arrival() -> None:
    planner, _ = scheduler(seats=2)
    asked = {name: request(name, seed=n) for n, name in enumerate("abc")}
    for one in asked.values():
        planner.add(one)
    step = planner.schedule(1.0)
    assert [s.request_id for s in step.sequences] == ["a", "b"]
    assert (planner.stats.running, planner.stats.waiting) == (2, 1)
    run(planner, asked, step)
    planner.remove(asked["a"])
    planner.release(asked["a"])
    assert [s.request_id for s in planner.schedule(2.0).sequences] == ["b", "c"]


def test_local_prefix_is_not_computed_again() -> None:
    planner, _ = scheduler()
    asked = {"a": request("a", 48), "b": request("b", 48)}
    planner.add(asked["a"])
    run(planner, asked, planner.schedule(1.0))
    planner.add(asked["b"])
    sequences = planner.schedule(2.0).sequences
    # The last token is computed even where all of a prompt is there.
    assert [(s.request_id, s.start, len(s.tokens)) for s in sequences] == [
        ("a", 48, 1),
        ("b", 32, 16),
    ]
    assert asked["b"].blocks[:2] == asked["a"].blocks[:2]
    assert (planner.stats.local_queries, planner.stats.local_hits) == (48 + 48, 32)


def test_first_source_with_tokens_loads_and_all_are_told() -> None:
    nixl, tier = Found(Kind.NIXL, 0), Found(Kind.LMCACHE, 32)
    planner, _ = scheduler(nixl, tier)
    asked = {"a": request("a", 40)}
    planner.add(asked["a"])
    step = planner.schedule(1.0)
    assert [(s.start, len(s.tokens)) for s in step.sequences] == [(32, 8)]
    assert (nixl.told, tier.told) == ([("a", 0)], [("a", 32)])
    assert (planner.stats.external_queries, planner.stats.external_hits) == (40, 32)


def test_request_waits_for_an_asynchronous_lookup_and_others_pass() -> None:
    tier = Found(Kind.LMCACHE, None)
    planner, _ = scheduler(tier)
    planner.add(request("a"))
    assert planner.schedule(1.0).sequences == []
    assert (planner.stats.waiting, planner.stats.deferred) == (0, 1)
    tier.tokens = 16
    assert [s.start for s in planner.schedule(2.0).sequences] == [16]


def test_background_load_holds_blocks_until_it_is_there() -> None:
    planner, pool = scheduler(Found(Kind.NIXL, 40, background=True))
    one = request("a", 40)
    planner.add(one)
    assert planner.schedule(1.0).sequences == []
    assert one.phase is Phase.LOADING
    assert len(one.blocks) == 3
    assert planner.stats.external_hits_by_nixl == 40
    assert planner.schedule(2.0).sequences == []
    # What the core does when the bytes are there.
    one.phase, one.computed = Phase.WAITING, 39
    planner.publish(one)
    assert [(s.start, len(s.tokens)) for s in planner.schedule(3.0).sequences] == [(39, 1)]
    assert pool.match(one.hashes) == one.blocks[:2]


def test_full_cache_preempts_the_youngest_which_starts_over() -> None:
    planner, pool = scheduler(blocks=4)
    asked = {"a": request("a", 31), "b": request("b", 31, seed=1)}
    for one in asked.values():
        planner.add(one)
    run(planner, asked, planner.schedule(1.0))
    run(planner, asked, planner.schedule(2.0))
    step = planner.schedule(3.0)
    assert [s.request_id for s in step.sequences] == ["a"]
    assert planner.waiting == [asked["b"]]
    assert planner.stats.preemptions == 1
    run(planner, asked, step)
    planner.remove(asked["a"])
    planner.release(asked["a"])
    step = planner.schedule(4.0)
    # Prompt and both output tokens are computed again, except what is still cached.
    assert [(s.request_id, s.start + len(s.tokens)) for s in step.sequences] == [("b", 33)]
    assert pool.free == 1


def test_failed_load_is_computed_from_the_last_right_block() -> None:
    tier = Found(Kind.LMCACHE, 32)
    planner, pool = scheduler(tier)
    asked = {"a": request("a", 40)}
    planner.add(asked["a"])
    planner.schedule(1.0)
    planner.roll_back(asked["a"], 20)
    assert pool.match(asked["a"].hashes) == []
    assert [(s.start, len(s.tokens)) for s in planner.schedule(2.0).sequences] == [(16, 24)]
    assert tier.told == [("a", 32), ("a", -16)]
    assert asked["a"].cached == 16
