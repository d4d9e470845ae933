import pytest
from kvserving_engine_cpu import layout


@pytest.mark.parametrize(("chunk", "block"), [(64, 32), (256, 16), (32, 32)])
def test_a_chunk_of_whole_blocks_is_accepted(chunk: int, block: int) -> None:
    layout.check_chunk(chunk, block)


@pytest.mark.parametrize(("chunk", "block"), [(64, 48), (16, 32), (64, 0)])
def test_any_other_chunk_is_refused_with_the_remedy(chunk: int, block: int) -> None:
    with pytest.raises(
        ValueError, match=rf"chunk_size {chunk} .* block size {block}: .*chunkTokens"
    ):
        layout.check_chunk(chunk, block)


@pytest.mark.parametrize(
    ("shape", "values", "tokens"),
    [
        ((2, 2, 32, 64), 2 * 2 * 64, 32),  # GQA: K and V, 2 heads of 64
        ((16, 576), 576, 16),  # MLA: one latent of 512 + 64
    ],
)
def test_tokens_per_block_follow_from_the_tensor(
    shape: tuple[int, ...], values: int, tokens: int
) -> None:
    assert layout.tokens_per_block(shape, values) == tokens


def test_a_block_that_cuts_a_token_is_refused() -> None:
    with pytest.raises(ValueError, match="whole tokens of 100 values"):
        layout.tokens_per_block((16, 576), 100)


def test_a_span_begins_every_block_once() -> None:
    start, stop, step = layout.span(64, 128, 32)
    assert list(range(256))[start:stop:step] == [64, 96]


@pytest.mark.parametrize(("start", "end"), [(0, 33), (1, 32), (64, 32)])
def test_a_range_that_cuts_a_block_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="begin and end on a block of 32"):
        layout.span(start, end, 32)


@pytest.mark.parametrize(
    ("start", "cached", "blocks"), [(0, 0, 0), (0, 64, 2), (64, 32, 0), (0, 33, 1)]
)
def test_blocks_of_vllms_own_prefix_cache_are_not_written_again(
    start: int, cached: int, blocks: int
) -> None:
    assert layout.already_there(start, cached, 32) == blocks
