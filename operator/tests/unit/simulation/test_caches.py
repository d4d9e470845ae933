"""Chunk keys, caches and the tier's queues, each against a slower way to say the same."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_operator.simulation.busy import WINDOW, BusyMeter
from kvserving_operator.simulation.caches import ShardedCache
from kvserving_operator.simulation.prefixes import ChunkKeys
from kvserving_operator.simulation.tier import NEVER, Tier
from kvserving_operator.simulation.trace import Request, Segment

PIECES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda drawn: tuple(Segment(name, tokens) for name, tokens in drawn)
)


def request(segments: Sequence[Segment]) -> Request:
    return Request(offset=0, output_tokens=1, segments=tuple(segments))


def pieces(segments: Sequence[Segment], end: int) -> list[tuple[str, int]]:
    """What a prompt is made of up to a token."""
    found: list[tuple[str, int]] = []
    for segment in segments:
        if end > 0:
            found.append((segment.id, min(segment.tokens, end)))
            end -= segment.tokens
    return found


@given(PIECES, PIECES)
def test_keys_are_equal_where_all_before_is_made_of_the_same(
    one: tuple[Segment, ...], two: tuple[Segment, ...]
) -> None:
    keys = ChunkKeys(4)
    first, second = keys.of(request(one)), keys.of(request(two))
    assert len(first) == sum(piece.tokens for piece in one) // 4
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        end = 4 * (index + 1)
        assert (left == right) == (pieces(one, end) == pieces(two, end))
    assert len(set(first)) == len(first)


@given(st.integers(1, 4), st.lists(st.integers(0, 40), unique=True), st.sets(st.integers(0, 40)))
def test_the_prefix_is_the_minimum_of_what_the_ranks_say(
    ranks: int, keys: list[int], there: set[int]
) -> None:
    cache = ShardedCache(ranks, None)
    for part in range(ranks):
        for index, key in enumerate(keys):
            if index % ranks == part and key in there:
                cache._parts[part][key] = None
    answers = [
        min((i for i, key in enumerate(keys) if i % ranks == rank and key not in there),
            default=len(keys))
        for rank in range(ranks)
    ]  # fmt: skip
    assert cache.prefix(keys) == min(answers)


def test_each_part_drops_what_was_used_longest_ago() -> None:
    cache = ShardedCache(2, 4)
    cache.put([0, 1, 2, 3])
    cache.put([0, 1])
    cache.put([10, 11])
    assert [cache.holds([key, key], key % 2) for key in (0, 1, 2, 3, 10, 11)] == [
        *(True, True),
        *(False, False),
        *(True, True),
    ]
    assert len(cache) == 4


def test_a_prefix_ends_at_its_first_hole() -> None:
    cache = ShardedCache(1, 3)
    cache.put([0, 1, 2, 3])
    assert cache.prefix([0, 1, 2, 3]) == 0
    assert cache.prefix([0, 1, 2, 3], 1) == 4


def tier(instances: int) -> Tier:
    return Tier(instances=instances, bandwidth=8.0, chunk_bytes=8.0, capacity=None)


def test_instances_share_the_bandwidth_and_the_slowest_rank_decides() -> None:
    assert tier(1).fetch(range(8), 0.0, deadline=NEVER, cancel=False) == pytest.approx(8.0)
    assert tier(8).fetch(range(8), 0.0, deadline=NEVER, cancel=False) == pytest.approx(8.0)
    assert tier(8).fetch([0, 8], 0.0, deadline=NEVER, cancel=False) == pytest.approx(16.0)


def test_an_instance_serves_one_after_the_other_and_owes_the_rest() -> None:
    one = tier(1)
    assert one.fetch(range(2), 0.0, deadline=NEVER, cancel=False) == pytest.approx(2.0)
    assert one.fetch(range(3), 1.0, deadline=NEVER, cancel=False) == pytest.approx(5.0)
    assert one.owed_bytes(1.0) == pytest.approx(4 * 8.0)
    assert one.owed_bytes(9.0) == 0.0


@pytest.mark.parametrize(("cancel", "then"), [(False, 7.0), (True, 4.0)])
def test_a_late_load_keeps_the_instance_busy_unless_it_is_given_up(
    *, cancel: bool, then: float
) -> None:
    one = tier(1)
    assert one.fetch(range(6), 0.0, deadline=3.0, cancel=cancel) is None
    assert one.fetch(range(1), 1.0, deadline=NEVER, cancel=False) == pytest.approx(then)


def test_the_share_of_busy_time_looks_back_ten_seconds() -> None:
    meter = BusyMeter()
    meter.stepped(0.0, 4.0)
    assert meter.share(5.0) == pytest.approx(4 / WINDOW)
    meter.stepped(9.0, 11.0)
    assert meter.share(12.0) == pytest.approx(4 / WINDOW)
    assert meter.share(30.0) == 0.0
