"""The paged KV memory of one rank.

It lies in anonymous memory shared between the front process and the worker: the worker computes in
it, LMCache copies from and to it, and the front moves blocks of it to and from other engines, as
NIXL does by one-sided reads without the workers taking part.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvserving_engine_sim.kv.layout import KVLayout
from kvserving_engine_sim.kv.model import Words


class PagedKV:
    """Token slots of one rank. Create it before forking, so that both sides see one memory."""

    def __init__(self, layout: KVLayout) -> None:
        self.layout = layout
        self._memory = mmap.mmap(-1, layout.bytes_per_rank)
        flat = np.frombuffer(self._memory, dtype=np.uint64)
        self._words = flat.reshape(layout.layers, layout.parts, layout.slots, layout.words)

    def slots(self, blocks: list[int], count: int) -> Any:
        """The slots of the first `count` tokens of a request that holds `blocks`."""
        size = self.layout.block_size
        starts = np.asarray(blocks, dtype=np.int64) * size
        return (starts[:, None] + np.arange(size)).ravel()[:count]

    def read(self, slots: Any) -> Words:
        """The entries [layers, parts, tokens, words] in `slots`."""
        return self._words[:, :, slots]

    def read_chain(self, slots: Any) -> Words:
        """Words 0 and 1 of the first layer in `slots`, [tokens, 2]."""
        return self._words[0, 0, slots, :2]

    def write(self, slots: Any, entries: Words) -> None:
        """Store entries [layers, parts, tokens, words] in `slots`."""
        self._words[:, :, slots] = entries

    def layers(self, torch: Any, dtype: Any) -> list[Any]:
        """The same memory as torch tensors, per layer [parts, slots, width], for LMCache."""
        layout = self.layout
        flat = torch.frombuffer(self._memory, dtype=dtype)
        return list(flat.reshape(layout.layers, layout.parts, layout.slots, -1).unbind(0))

    def block_views(self, block: int) -> Iterator[memoryview]:
        """The bytes of one block: one writable view per layer and part, in the order of a wire."""
        size = self.layout.block_size
        for layer in self._words[:, :, block * size : (block + 1) * size]:
            for part in layer:
                yield memoryview(part).cast("B")
