"""What a store is told of a prompt's chunks, and where a store stands. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvserving_sharded_store.ownership import Shard


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a prompt.

    Attributes:
        index: Absolute index.
        local_key: Name in the local cache.
        digest: Hash of its tokens and all before it.
        realm: See ``keys.realm``.
    """

    index: int
    local_key: Any
    digest: bytes
    realm: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store stands.

    Attributes:
        rank: This rank.
        world: Ranks that load together.
        shared: Whether all ranks hold the same KV; if not, each stores all of its own.
        epoch: See ``keys``.
    """

    rank: int
    world: int
    shared: bool
    epoch: str

    @property
    def shard(self) -> Shard:
        """Which chunks are this rank's."""
        return Shard(self.rank, self.world) if self.shared else Shard(0, 1)

    @property
    def holder(self) -> int:
        """The rank in the names of keys."""
        return 0 if self.shared else self.rank
