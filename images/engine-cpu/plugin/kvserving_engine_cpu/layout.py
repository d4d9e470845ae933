"""The arithmetic of whole blocks: pure, in tokens, without torch."""

from __future__ import annotations

from math import prod
from typing import NamedTuple


class Span(NamedTuple):
    """The blocks of a chunk: every `step`-th slot from `start` to `stop` begins one."""

    start: int
    stop: int
    step: int


def check_chunk(chunk: int, block: int) -> None:
    """Raises ValueError with the remedy when LMCache's chunk is not made of whole vLLM blocks."""
    if block < 1 or chunk % block:
        raise ValueError(
            f"LMCache chunk_size {chunk} is not a multiple of vLLM's block size {block}: "
            "on CPU whole blocks are moved; choose a chunk_size (spec.kvCache.chunkTokens) "
            f"that is a multiple of {block}, or another --block-size"
        )


def tokens_per_block(block_shape: tuple[int, ...], values_per_token: int) -> int:
    """Tokens in one block of a paged cache whose tokens each hold this many values."""
    values = prod(block_shape)
    if values_per_token < 1 or values % values_per_token:
        raise ValueError(
            f"a KV block of shape {block_shape} does not hold whole tokens "
            f"of {values_per_token} values"
        )
    return values // values_per_token


def span(start: int, end: int, block: int) -> Span:
    """The whole blocks of tokens start..end; raises ValueError when the range cuts a block."""
    if start % block or end % block or end < start:
        raise ValueError(f"tokens {start}..{end} do not begin and end on a block of {block} tokens")
    return Span(start, end, block)


def already_there(start: int, cached: int, block: int) -> int:
    """How many leading blocks of a chunk at `start` are among vLLM's own `cached` tokens."""
    return max(0, cached - start) // block
