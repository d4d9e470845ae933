"""Keys of chunks with hashes that are the same in every process. Needs LMCache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from lmcache.v1.token_database import ChunkedTokenDatabase

from kvserving_sharded_store.keys import prefix_hashes


class StableTokenDatabase(ChunkedTokenDatabase):  # type: ignore[misc]
    """LMCache's database of chunks with our hashes, which need neither a seed nor an algorithm."""

    def _prefix_hash(self, token_chunks: Iterable[Any]) -> Iterator[bytes]:
        return prefix_hashes(np.asarray(chunk, dtype="<i8").tobytes() for chunk in token_chunks)
