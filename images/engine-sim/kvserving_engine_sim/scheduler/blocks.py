"""KV blocks: reference counts, the prefix cache over them, eviction by least recent use (pure)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from kvserving_engine_sim.kv.model import Words


class BlockPool:
    """Blocks 0..count-1. A freed block keeps its content and hash until it is taken again."""

    def __init__(self, count: int, *, caching: bool = True) -> None:
        self._count = count
        self._caching = caching
        self._references = [0] * count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds, cached content included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """The fraction of blocks that are held."""
        return 1.0 - len(self._free) / self._count

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """The cached blocks of the longest cached prefix."""
        found = []
        for digest in hashes:
            block = self._block_of.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def held(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are held already, so that taking them needs no free block."""
        return sum(self._references[block] > 0 for block in blocks)

    def take(self, blocks: Sequence[int]) -> None:
        """Hold blocks found by `match` once more."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with undefined content; the caller has looked at `free`."""
        blocks = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        """Give up one hold on each; the end of a prefix is evicted before its beginning."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None

    def publish(self, block: int, digest: bytes) -> None:
        """Make a full block findable under the hash of its prefix, unless another one is."""
        if self._caching and digest not in self._block_of and block not in self._hash_of:
            self._hash_of[block] = digest
            self._block_of[digest] = block

    def withdraw(self, blocks: Sequence[int]) -> None:
        """Make blocks with wrong content unfindable."""
        for block in blocks:
            self._forget(block)

    def reset(self) -> bool:
        """Forget all cached content; False, with nothing done, while blocks are held."""
        if len(self._free) != self._count:
            return False
        self._hash_of.clear()
        self._block_of.clear()
        return True

    def _forget(self, block: int) -> None:
        digest = self._hash_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]


def extend_hashes(hashes: list[bytes], tokens: Words, block_size: int, count: int) -> None:
    """Append the hashes of the full blocks of `tokens` until there are `count`."""
    while len(hashes) < count:
        start = len(hashes) * block_size
        parent = hashes[-1] if hashes else b""
        content = tokens[start : start + block_size].tobytes()
        hashes.append(hashlib.blake2b(parent + content, digest_size=16).digest())
