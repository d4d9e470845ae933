"""The simulated model: KV as a function of the token prefix, the next token as a function of KV.

Entry of position p: word 0 of the first layer is h_p, a running hash of the tokens up to p; word 1
is c_p, the sum of mix(h) up to p; every other word is h_p XOR a constant of its place. To attend to
a prefix is to read its entries back from the cache and to check them against one another; what is
wrong anywhere in it (a flipped byte, a block of another prompt, zeros) changes the state that comes
out, hence the KV computed on top of it and the tokens that follow. With right KV the state is h of
the last position, so neither the number of ranks, nor the block size, nor how a prompt was cut into
chunks changes an answer.

All numbers are unsigned 64-bit and wrap around.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvserving_engine_sim.kv.layout import KVLayout

Words = Any  # a numpy array of uint64; numpy is not in the repository's own environment

MASK = (1 << 64) - 1
EOS = 256
VOCABULARY = 257
# A completion may end by itself from its 17th token on, once in 256 tokens: long enough for short
# answers never to be cut, and a chat without a limit ends.
_EOS_FROM = 16
_EOS_ONE_IN = 256
_ALPHABET = b"abcdefghijklmnopqrstuvwxyz      "
_STEP = 0x9E3779B97F4A7C15
_RADIX = 0xD1342543DE82EF95
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(values: Words) -> Words:
    """A bijection of 64-bit words that changes half of the bits for each changed one."""
    z = values + np.uint64(_STEP)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


def mix_one(value: int) -> int:
    """`mix` of one number."""
    z = (value + _STEP) & MASK
    z = ((z ^ (z >> 30)) * _FIRST) & MASK
    z = ((z ^ (z >> 27)) * _SECOND) & MASK
    return z ^ (z >> 31)


@dataclass(frozen=True)
class State:
    """What attending to a prefix yields: the running hash and the chain sum at its end."""

    value: int
    chain: int


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; `noise` is 0 for greedy."""

    noise: int = 0
    ignore_eos: bool = False


class Model:
    """The KV function of one rank. `identity` stands for the weights: another one, other KV."""

    def __init__(self, layout: KVLayout, identity: str, rank: int = 0) -> None:
        digest = hashlib.sha256(identity.encode()).digest()
        self._empty = State(int.from_bytes(digest[:8], "big"), 0)
        places = np.arange(layout.layers * layout.parts * layout.words, dtype=np.uint64)
        owner = 0 if layout.replicated else rank + 1
        self._salts = mix(places + np.uint64(mix_one(owner))).reshape(
            layout.layers, layout.parts, 1, layout.words
        )
        self._powers = np.ones(1, dtype=np.uint64)

    @property
    def empty(self) -> State:
        """The state before the first token."""
        return self._empty

    def extend(self, state: State, tokens: Words, start: int) -> Words:
        """The entries [layers, parts, tokens, words] of `tokens` at positions from `start` on."""
        terms = (tokens.astype(np.uint64) + np.uint64(1)) * self._power(start, len(tokens))
        hashes = np.cumsum(terms, dtype=np.uint64) + np.uint64(state.value)
        chain = np.cumsum(mix(hashes), dtype=np.uint64) + np.uint64(state.chain)
        entries = hashes[:, None] ^ self._salts
        entries[0, 0, :, 0] = hashes
        entries[0, 0, :, 1] = chain
        return entries

    def attend(self, chain: Words, entries: Words, start: int) -> State:
        """The state at the end of a prefix, from what the cache holds.

        `chain` are words 0 and 1 of every position of the prefix, `entries` the full entries from
        position `start` on (the ones not looked at before). Anything inconsistent changes it.
        """
        if not len(chain):
            return self._empty
        hashes, sums = chain[:, 0], chain[:, 1]
        expected = np.cumsum(mix(hashes), dtype=np.uint64)
        defect = _defect(sums, expected)
        if entries.shape[2]:
            rendered = hashes[start:, None] ^ self._salts
            rendered[0, 0, :, 0] = hashes[start:]
            rendered[0, 0, :, 1] = sums[start:]
            defect = (defect + _defect(entries, rendered)) & MASK
        return State((int(hashes[-1]) + defect) & MASK, int(sums[-1]))

    def _power(self, start: int, count: int) -> Words:
        missing = start + count - len(self._powers)
        if missing > 0:
            factors = np.full(max(missing, len(self._powers)), _RADIX, dtype=np.uint64)
            factors[0] = int(self._powers[-1]) * _RADIX & MASK
            self._powers = np.concatenate([self._powers, np.cumprod(factors, dtype=np.uint64)])
        return self._powers[start : start + count]


def _defect(found: Words, expected: Words) -> int:
    """0 when both are equal, else a number that depends on what differs and where."""
    if np.array_equal(found, expected):
        return 0
    difference = (found ^ expected).ravel()
    places = np.flatnonzero(difference).astype(np.uint64)
    spread = mix(difference[places.astype(np.int64)] + mix(places))
    return mix_one(int(np.sum(spread, dtype=np.uint64))) | 1


def combine(values: list[int]) -> int:
    """One context out of those that the ranks saw: theirs if they agree, else one of its own."""
    if all(value == values[0] for value in values):
        return values[0]
    mixed = 0
    for value in values:
        mixed = mix_one(mixed ^ value)
    return mixed


def next_token(context: int, generated: int, sampling: Sampling) -> int:
    """The token that follows a context, given how many tokens were generated before it."""
    drawn = mix_one(context ^ _RADIX)
    if sampling.noise:
        drawn = mix_one(drawn ^ mix_one((sampling.noise + generated) & MASK))
    if not sampling.ignore_eos and generated >= _EOS_FROM and (drawn >> 32) % _EOS_ONE_IN == 0:
        return EOS
    return _ALPHABET[drawn % len(_ALPHABET)]
