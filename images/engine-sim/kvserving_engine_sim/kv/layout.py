"""The shape of one rank's KV cache (pure)."""

from __future__ import annotations

from dataclasses import dataclass

WORD_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class KVLayout:
    """Per token, layer and part a vector of `words` 64-bit words.

    `parts` is 1 for MLA (one latent vector) and 2 for GQA (keys, values). `replicated` says that
    every one of the `ranks` holds the same KV (MLA); otherwise each rank has its own.
    """

    layers: int
    parts: int
    words: int
    block_size: int
    num_blocks: int
    replicated: bool
    ranks: int = 1

    @property
    def slots(self) -> int:
        """Token places in the cache."""
        return self.num_blocks * self.block_size

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token on one rank."""
        return self.layers * self.parts * self.words * WORD_BYTES

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on one rank."""
        return self.bytes_per_token * self.block_size

    @property
    def bytes_per_rank(self) -> int:
        """Bytes of the whole cache of one rank."""
        return self.bytes_per_token * self.slots
