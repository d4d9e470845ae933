"""Memory for a retention: the formula against a simulation of Valkey's own algorithm."""

import bisect
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.sizing.tier import (
    LOST_SHARE,
    Stream,
    lost_behind_holes,
    memory,
    retention,
)

STREAM = Stream(bytes_per_second=1.21 * 16_390 * 48_400, chunks=64)


def ages_of_the_evicted(keys: int, turns: int, seed: int) -> list[float]:
    """Ages, in writings of the whole tier: 10 keys looked at, the oldest of these and of a pool of
    16 from before goes, as maxmemory-policy allkeys-lru does with maxmemory-samples 10."""
    rng = random.Random(seed)  # noqa: S311
    held: list[int] = []
    place: dict[int, int] = {}
    pool: list[int] = []
    ages = []
    for key in range(keys * turns):
        if len(held) == keys:
            seen = [held[rng.randrange(keys)] for _ in range(10)]
            pool = sorted({old for old in (*pool, *seen) if old in place})[:16]
            oldest = pool.pop(0)
            at, last = place.pop(oldest), held.pop()
            if last != oldest:
                held[at], place[last] = last, at
            if key > 3 * keys:
                ages.append((key - oldest) / keys)
        place[key] = len(held)
        held.append(key)
    return sorted(ages)


@pytest.mark.parametrize("keys", [1_500, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_the_formula_is_on_the_safe_side_of_valkeys_algorithm_and_not_by_much(keys: int):
    ages = ages_of_the_evicted(keys=keys, turns=6, seed=1)

    def gone(age: float) -> float:
        return bisect.bisect(ages, age) / len(ages)

    asked = memory(STREAM, 600)
    age = asked.kv_bytes / asked.tier_bytes
    assert lost_behind_holes(gone(age), STREAM.chunks) <= LOST_SHARE
    assert lost_behind_holes(gone(0.95), STREAM.chunks) > 0.5
    assert gone(1.0) == pytest.approx(0.65, abs=0.05)


def test_the_papers_stream_for_ten_minutes():
    needed = memory(STREAM, 600)
    assert needed.kv_bytes == pytest.approx(536.4 * 2**30, rel=0.001)
    assert needed.tier_bytes / needed.kv_bytes == pytest.approx(1.175, abs=0.01)
    assert needed.lost_share == pytest.approx(0.05, abs=0.0001)


@given(rate=st.floats(1e3, 1e12), chunks=st.integers(1, 4_000), wanted=st.floats(1, 1e7))
def test_memory_and_retention_are_each_others_inverse(rate: float, chunks: int, wanted: float):
    stream = Stream(bytes_per_second=rate, chunks=chunks)
    needed = memory(stream, wanted)
    assert needed.tier_bytes >= needed.kv_bytes * 0.999
    assert retention(stream, needed.tier_bytes) == pytest.approx(wanted)


def test_an_idle_tier_keeps_for_ever():
    assert retention(Stream(bytes_per_second=0, chunks=1), 1e9) == math.inf


def test_holes_cost_what_is_behind_them():
    assert lost_behind_holes(0, 64) == 0
    assert lost_behind_holes(1, 64) == 1
    # One chunk: its own chance. Two: the second needs the first.
    assert lost_behind_holes(0.1, 1) == pytest.approx(0.1)
    assert lost_behind_holes(0.1, 2) == pytest.approx(1 - (0.9 + 0.81) / 2)


@given(gone=st.floats(0.0001, 0.5), chunks=st.integers(1, 60))
def test_the_mean_prefix_is_the_sum_of_its_chances(gone: float, chunks: int):
    whole = sum((1 - gone) ** j for j in range(1, chunks + 1)) / chunks
    assert lost_behind_holes(gone, chunks) == pytest.approx(1 - whole, abs=1e-9)
