"""Groups cover the chunks in order, alike on every rank, and fit the buffer."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvserving_sharded_store import grouping
from kvserving_sharded_store.grouping import Buffer, groups
from kvserving_sharded_store.ownership import Shard

MIB = 1 << 20
PAPER_CHUNK = 12_400_000


@given(
    total=st.integers(0, 1000),
    world=st.integers(1, 16),
    least=st.integers(1, 40),
    more=st.integers(0, 40),
)
def test_groups_cover_all_chunks_in_order_and_fit(
    total: int, world: int, least: int, more: int
) -> None:
    buffer = Buffer(most=least + more, least=least)
    cut = groups(total, world, buffer)
    assert [chunk for group in cut for chunk in group] == list(range(total))
    sizes = set()
    for group in cut:
        for rank in range(world):
            mine = [chunk for chunk in group if Shard(rank, world).owns(chunk)]
            assert len(mine) <= buffer.most
            sizes.add(len(mine)) if group is not cut[-1] else None
    assert len(sizes) <= 1


def test_groups_depend_on_nothing_but_chunks_ranks_and_buffer() -> None:
    assert list(inspect.signature(groups).parameters) == ["total", "world", "buffer"]
    assert not any(inspect.ismodule(value) for value in vars(grouping).values())


def test_large_chunks_are_cut_to_overlap_and_small_ones_are_not() -> None:
    large = Buffer.of(size=512 * MIB, chunk_bytes=PAPER_CHUNK, world=8)
    assert [len(group) for group in groups(64, 8, large)] == [16] * 4
    small = Buffer.of(size=512 * MIB, chunk_bytes=16_384, world=8)
    assert [len(group) for group in groups(64, 8, small)] == [64]


def test_the_buffer_bounds_a_group() -> None:
    tight = Buffer.of(size=2 * 8 * PAPER_CHUNK, chunk_bytes=PAPER_CHUNK, world=8)
    assert tight.most == 1
    assert [len(group) for group in groups(20, 8, tight)] == [8, 8, 4]


def test_a_buffer_too_small_for_one_chunk_of_each_rank_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match=str(2 * 8 * PAPER_CHUNK)):
        Buffer.of(size=2 * 8 * PAPER_CHUNK - 1, chunk_bytes=PAPER_CHUNK, world=8)
