"""The proposition (the minimum over ranks is the longest prefix), owners and places."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_sharded_store.lookup import (
    async_answer,
    cumulative_lengths,
    sync_answer,
    whole_chunks,
)
from kvserving_sharded_store.ownership import (
    Shard,
    agreed_prefix,
    first_missing,
    ordinal,
    owner,
    places,
    slot_of,
)

WORLDS = (2, 3, 4, 8)
CHUNK = 256


def longest_prefix(presence: tuple[bool, ...]) -> int:
    return presence.index(False) if False in presence else len(presence)


def agreed(presence: tuple[bool, ...], world: int) -> int:
    total = len(presence)
    return agreed_prefix(
        first_missing(Shard(rank, world), total, presence.__getitem__) for rank in range(world)
    )


def leading_hits(shard: Shard, presence: tuple[bool, ...]) -> int:
    """What the storage layer counts: owned chunks found before the first gap."""
    hits = 0
    for chunk in shard.owned(len(presence)):
        if not presence[chunk]:
            break
        hits += 1
    return hits


@pytest.mark.parametrize("world", WORLDS)
def test_proposition_exhaustively_up_to_ten_chunks(world: int) -> None:
    for total in range(11):
        for presence in product((False, True), repeat=total):
            assert agreed(presence, world) == longest_prefix(presence)


@pytest.mark.parametrize("world", [1, *WORLDS])
def test_proposition_on_random_prompts_up_to_800_chunks(world: int) -> None:
    random = Random(f"proposition {world}")
    for _ in range(150):
        total = random.randrange(801)
        # Mostly present, as caches are, so that prefixes get long.
        absent = {random.randrange(total) for _ in range(random.randrange(4))} if total else set()
        presence = tuple(chunk not in absent for chunk in range(total))
        assert agreed(presence, world) == longest_prefix(presence)


@settings(max_examples=3000, deadline=None)
@given(
    presence=st.binary(max_size=120).map(lambda data: tuple(byte > 12 for byte in data)),
    world=st.sampled_from((1, *WORLDS)),
    tail=st.integers(0, CHUNK - 1),
)
def test_sync_and_async_answer_alike(presence: tuple[bool, ...], world: int, tail: int) -> None:
    tokens = len(presence) * CHUNK + tail
    answers = []
    for rank in range(world):
        shard = Shard(rank, world)
        vector = cumulative_lengths(shard, tokens, CHUNK)
        answer = async_answer(vector, leading_hits(shard, presence))
        assert answer == sync_answer(shard, tokens, CHUNK, presence.__getitem__)
        answers.append(answer)
    assert agreed_prefix(answers) == longest_prefix(presence) * CHUNK


def test_a_rank_without_hits_answers_its_first_entry_and_not_zero() -> None:
    shard = Shard(rank=1, world=2)
    vector = cumulative_lengths(shard, 4 * CHUNK, CHUNK)
    assert vector == (256, 768, 1024)
    assert async_answer(vector, 0) == 256
    assert cumulative_lengths(Shard(0, 1), 2 * CHUNK, CHUNK) == (0, 256, 512)


def test_a_rank_that_owns_nothing_of_a_short_prompt_does_not_shorten_it() -> None:
    assert cumulative_lengths(Shard(3, 8), 2 * CHUNK + 5, CHUNK) == (512,)
    assert sync_answer(Shard(3, 8), 2 * CHUNK + 5, CHUNK, lambda _chunk: False) == 512


def test_more_hits_than_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="3 hits"):
        async_answer((0, 256, 512), 3)


@pytest.mark.parametrize(("tokens", "chunks"), [(0, 0), (255, 0), (256, 1), (16_390, 64)])
def test_only_whole_chunks_count(tokens: int, chunks: int) -> None:
    assert whole_chunks(tokens, CHUNK) == chunks


@given(total=st.integers(0, 300), world=st.integers(1, 16), start=st.integers(0, 300))
def test_every_chunk_has_exactly_one_owner_wherever_a_step_starts(
    total: int, world: int, start: int
) -> None:
    seen = [chunk for rank in range(world) for chunk in Shard(rank, world).owned(total, start)]
    assert sorted(seen) == list(range(start, total))
    assert all(Shard(owner(chunk, world), world).owns(chunk) for chunk in seen)


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0)])
def test_a_rank_outside_its_world_is_refused(rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="not one of"):
        Shard(rank, world)


def test_ordinals_only_append_when_slots_grow() -> None:
    def ordinals(slots: int) -> list[int]:
        return [ordinal(slot=s, rank=r, world=4) for s in range(slots) for r in range(4)]

    assert ordinals(1) == [0, 1, 2, 3]
    assert ordinals(3)[:8] == ordinals(2) == list(range(8))


KEYS = [f"key {number}".encode() for number in range(4000)]


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_slots_are_even_and_growth_moves_only_to_the_new_slot(slots: int) -> None:
    share = [0] * slots
    moved = 0
    for key in KEYS:
        share[slot_of(key, slots)] += 1
        if slot_of(key, slots + 1) != slot_of(key, slots):
            assert slot_of(key, slots + 1) == slots
            moved += 1
    assert max(share) < 1.15 * len(KEYS) / slots
    assert moved / len(KEYS) == pytest.approx(1 / (slots + 1), abs=0.03)


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_places_are_where_the_key_was_at_every_size(slots: int) -> None:
    for key in KEYS[:500]:
        history = [slot_of(key, size) for size in range(slots, 0, -1)]
        assert list(places(key, slots)) == list(dict.fromkeys(history))


def test_growth_keeps_every_hit_and_without_earlier_places_would_lose_nearly_all() -> None:
    """64 chunks a prompt, one rank, slots 1 → 2 under a warm tier."""
    kept = lost = 0
    for prompt in range(50):
        keys = [f"{prompt}/{chunk}".encode() for chunk in range(64)]
        found = [0 in places(key, 2) for key in keys]
        kept += longest_prefix(tuple(found))
        lost += 64 - longest_prefix(tuple(slot_of(key, 2) == 0 for key in keys))
    assert kept == 50 * 64
    assert lost > 0.9 * 50 * 64
