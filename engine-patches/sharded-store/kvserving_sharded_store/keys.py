"""Names of chunks in the remote tier. Pure.

A name says everything that makes two chunks different KV, so that engines which must not share KV
never name the same key, and those that can always do: whatever the number of ranks was, whichever
rank wrote it, in whichever process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

_FORMAT: Final = 1
"""Version of the bytes behind a key; a change of layout starts another epoch."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the KV of one engine is a function of, beside the tokens.

    Attributes:
        model: Identity of the model, as the engine names it.
        revision: Revision of the weights; empty when there is none.
        digest: Hash of configuration and weight index for weights on a path; empty otherwise.
        dtype: Type of the stored KV elements.
        chunk_tokens: Tokens of a chunk.
        layout: Shape of one chunk's KV (planes, layers, tokens, width), and what else orders its
            bytes, such as the engine's block size where blocks are moved as they lie.
        tier: The epoch the operator names; empty without an operator.
    """

    model: str
    revision: str
    digest: str
    dtype: str
    chunk_tokens: int
    layout: tuple[int | str, ...]
    tier: str = ""

    @property
    def epoch(self) -> str:
        """16 hexadecimal digits that begin every key of this identity."""
        text = json.dumps(
            [
                _FORMAT,
                self.model,
                self.revision,
                self.digest,
                self.dtype,
                self.chunk_tokens,
                list(self.layout),
                self.tier,
            ],
            ensure_ascii=True,
            separators=(",", ":"),
        )
        return blake2b(text.encode(), digest_size=8, person=b"kvs-epoch").hexdigest()


def realm(tags: Mapping[str, str]) -> str:
    """One token for everything that keeps requests of one model apart; empty for no tags.

    Args:
        tags: Name to value of what separates them: the cache salt, the adapter. Any text.
    """
    if not tags:
        return ""
    text = json.dumps(sorted(tags.items()), ensure_ascii=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=8, person=b"kvs-realm").hexdigest()


def chunk_key(*, epoch: str, holder: int, chunk_hash: bytes, realm: str = "") -> bytes:
    """The key of a chunk.

    Args:
        epoch: From ``Identity.epoch``.
        holder: 0 where every rank holds the same KV; the rank itself where each has heads of its
            own, because then the same tokens are other bytes on every rank.
        chunk_hash: Hash of the chunk's tokens and all before them; at least 8 bytes.
        realm: From ``realm``.

    Raises:
        ValueError: For a hash too short to tell chunks apart.
    """
    if len(chunk_hash) < 8:
        raise ValueError(f"a chunk hash of {len(chunk_hash)} bytes")
    return f"kvs:{epoch}:{holder}:{realm}:{chunk_hash.hex()}".encode()


def prefix_hashes(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Hash of each chunk's tokens and of all before it, 32 bytes each.

    Args:
        chunks: The token numbers of each chunk as bytes, of one fixed width and order.

    Not the engine's own hashes: those are folded to 64 bits, for which a second text can be found
    in hours, and some depend on the process's hash seed. A tier that many users share needs more.
    """
    before = b""
    for tokens in chunks:
        before = blake2b(before + tokens, digest_size=32, person=b"kvs-chunk").digest()
        yield before
