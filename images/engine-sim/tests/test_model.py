from __future__ import annotations

import random

import numpy as np
import pytest

from kvserving_engine_sim.kv.layout import KVLayout
from kvserving_engine_sim.kv.model import (
    EOS,
    MASK,
    Model,
    Sampling,
    State,
    combine,
    mix,
    mix_one,
    next_token,
)
from kvserving_engine_sim.kv.paged import PagedKV

LAYOUT = KVLayout(layers=3, parts=1, words=4, block_size=16, num_blocks=64, replicated=True)
BLOCKS = list(range(63, -1, -1))


def tokens(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count).astype(np.uint16)


class Prefix:
    """A paged cache that a model fills chunk by chunk, as a worker does."""

    def __init__(self, layout: KVLayout = LAYOUT, identity: str = "m", rank: int = 0) -> None:
        self.cache = PagedKV(layout)
        self.model = Model(layout, identity, rank)

    def fill(self, prompt: np.ndarray, cuts: list[int], blocks: list[int] = BLOCKS) -> State:
        slots, position = self.cache.slots(blocks, len(prompt)), 0
        for count in cuts:
            state = self.attend(position, blocks)
            chunk = slots[position : position + count]
            new = prompt[position : position + count]
            self.cache.write(chunk, self.model.extend(state, new, position))
            position += count
        assert position == len(prompt)
        return self.attend(position, blocks)

    def attend(self, count: int, blocks: list[int] = BLOCKS, checked: int = 0) -> State:
        slots = self.cache.slots(blocks, count)
        entries = self.cache.read(slots[checked:])
        return self.model.attend(self.cache.read_chain(slots), entries, checked)


def test_mixing_one_number_and_many_is_the_same() -> None:
    numbers = [0, 1, MASK, 12_345]
    mixed = mix(np.array(numbers, dtype=np.uint64))
    assert [int(number) for number in mixed] == [mix_one(number) for number in numbers]


@pytest.mark.parametrize("seed", range(20))
def test_state_depends_on_the_tokens_alone(seed: int) -> None:
    chosen = random.Random(seed)  # noqa: S311
    prompt = tokens(chosen.randrange(1, 900), seed)
    whole = Prefix().fill(prompt, [len(prompt)])
    cuts: list[int] = []
    while sum(cuts) < len(prompt):
        cuts.append(chosen.randrange(1, len(prompt) - sum(cuts) + 1))
    shuffled = chosen.sample(range(64), 64)
    other = KVLayout(layers=2, parts=2, words=8, block_size=16, num_blocks=64, replicated=False)
    assert Prefix().fill(prompt, cuts, shuffled) == whole
    assert Prefix(other, rank=3).fill(prompt, cuts) == whole


def test_one_other_token_or_another_model_changes_the_state() -> None:
    prompt = tokens(300)
    state = Prefix().fill(prompt, [300]).value
    for position in (0, 150, 299):
        changed = prompt.copy()
        changed[position] ^= 1
        assert Prefix().fill(changed, [300]).value != state
    assert Prefix().fill(prompt[:299], [299]).value != state
    assert Prefix(identity="other").fill(prompt, [300]).value != state


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 0), (2, 0, 3)])
@pytest.mark.parametrize("position", [0, 150, 299])
def test_one_wrong_bit_anywhere_changes_the_state(
    place: tuple[int, int, int], position: int
) -> None:
    prefix = Prefix()
    right = prefix.fill(tokens(300), [300])
    slot = prefix.cache.slots(BLOCKS, 300)[position : position + 1]
    entries = prefix.cache.read(slot).copy()
    layer, part, word = place
    entries[layer, part, 0, word] ^= np.uint64(1 << 40)
    prefix.cache.write(slot, entries)
    assert prefix.attend(300).value != right.value


def test_blocks_of_another_prompt_or_zeros_change_the_state() -> None:
    prefix = Prefix()
    right = prefix.fill(tokens(160), [160], BLOCKS[:10])
    prefix.fill(tokens(160, seed=1), [160], BLOCKS[20:30])
    foreign = [*BLOCKS[:4], BLOCKS[24], *BLOCKS[5:10]]
    assert prefix.attend(160, foreign).value != right.value
    assert prefix.attend(160, [*BLOCKS[:4], 0, *BLOCKS[5:10]]).value != right.value
    swapped = [BLOCKS[1], BLOCKS[0], *BLOCKS[2:10]]
    assert prefix.attend(160, swapped).value != right.value


def test_kv_computed_on_wrong_kv_is_wrong() -> None:
    prefix = Prefix()
    prompt = tokens(200)
    right = prefix.fill(prompt, [200])
    slots = prefix.cache.slots(BLOCKS, 200)
    entries = prefix.cache.read(slots[50:51]).copy()
    entries[1, 0, 0, 2] ^= np.uint64(1)
    prefix.cache.write(slots[50:51], entries)
    state = prefix.attend(100)
    prefix.cache.write(slots[100:], prefix.model.extend(state, prompt[100:], 100))
    # Even with the wrong entry put right again.
    entries[1, 0, 0, 2] ^= np.uint64(1)
    prefix.cache.write(slots[50:51], entries)
    assert prefix.attend(200).value != right.value


def test_entries_that_were_checked_before_are_not_needed_again() -> None:
    prefix = Prefix()
    right = prefix.fill(tokens(100), [100])
    assert prefix.attend(100, checked=60) == right
    assert prefix.attend(100, checked=100) == right


def test_ranks_that_disagree_give_another_context() -> None:
    assert combine([5, 5, 5]) == 5
    assert combine([5, 6, 5]) not in (5, 6)
    assert combine([5, 6, 5]) != combine([6, 5, 5])


def test_tokens_are_text_and_end_by_themselves_only_late() -> None:
    greedy, endless = Sampling(), Sampling(ignore_eos=True)
    early = {next_token(mix_one(n), 15, greedy) for n in range(20_000)}
    late = {next_token(mix_one(n), 16, greedy) for n in range(20_000)}
    assert EOS not in early
    assert bytes(early).decode().isascii()
    assert EOS in late
    assert EOS not in {next_token(mix_one(n), 16, endless) for n in range(20_000)}


def test_sampling_noise_chooses_other_tokens() -> None:
    drawn = [next_token(n, 0, Sampling(noise=7)) for n in range(200)]
    assert drawn == [next_token(n, 0, Sampling(noise=7)) for n in range(200)]
    assert drawn != [next_token(n, 0, Sampling(noise=8)) for n in range(200)]


def test_block_views_are_the_memory_of_a_block() -> None:
    cache = PagedKV(LAYOUT)
    views = list(cache.block_views(5))
    assert sum(map(len, views)) == LAYOUT.bytes_per_block
    for view in views:
        view[:] = bytes([7]) * len(view)
    assert (cache.read(cache.slots([5], 16)) == 0x0707070707070707).all()
    assert not cache.read(cache.slots([4, 6], 32)).any()
