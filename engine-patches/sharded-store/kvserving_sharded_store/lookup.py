"""What one rank answers to a lookup, in tokens. Pure.

The scheduler takes the minimum over the ranks. Both ways to look up give the same answer: the
synchronous one asks for presence and stops at the first gap; the asynchronous one hands the storage
layer a vector of token counts and gets back the entry at the number of leading hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvserving_sharded_store.ownership import Shard, first_missing


def whole_chunks(tokens: int, chunk_tokens: int) -> int:
    """Chunks a prompt of so many tokens fills; a last chunk that is not full does not count."""
    if tokens < 0 or chunk_tokens < 1:
        raise ValueError(f"{tokens} tokens in chunks of {chunk_tokens}")
    return tokens // chunk_tokens


def sync_answer(
    shard: Shard, tokens: int, chunk_tokens: int, present: Callable[[int], bool]
) -> int:
    """Start token of the first chunk this rank owns and lacks; the prompt's whole chunks if none.

    A rank without any hit does not answer 0: what lies before its first chunk is not its to judge.
    """
    return first_missing(shard, whole_chunks(tokens, chunk_tokens), present) * chunk_tokens


def cumulative_lengths(shard: Shard, tokens: int, chunk_tokens: int) -> tuple[int, ...]:
    """Entry k = the answer of this rank when its first k owned chunks are there and no more.

    That is the start token of its k-th owned chunk; the entry after the last is the length of all
    whole chunks. There is always one entry more than there are owned chunks, so at least one.
    """
    total = whole_chunks(tokens, chunk_tokens)
    starts = [chunk * chunk_tokens for chunk in shard.owned(total)]
    return (*starts, total * chunk_tokens)


def async_answer(vector: Sequence[int], leading_hits: int) -> int:
    """The answer after a prefetch that found so many leading owned chunks.

    Raises:
        ValueError: If more hits are reported than the vector has chunks.
    """
    if not 0 <= leading_hits < len(vector):
        raise ValueError(f"{leading_hits} hits for {len(vector) - 1} chunks")
    return vector[leading_hits]
