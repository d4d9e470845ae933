"""Copies chunks between an engine's paged KV and memory, as bytes, whatever a block looks like.

A chunk is whole blocks of every layer, each as it lies. So nothing here knows heads, planes or
formats: latent and grouped-query attention, caches that hold keys and values side by side, and
layers of different widths are all the same to it. What it cannot copy exactly it refuses. Stock
LMCache's kernels assume formats instead, and give silently wrong KV for grouped-query attention
since vLLM packs keys and values into one axis.

Needs torch and LMCache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from lmcache.v1.memory_management import MemoryFormat

_AT_ONCE: Final = 16
"""Chunks that are gathered in accelerator memory at a time."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's cache as rows of bytes, one row per block.

    Attributes:
        rows: ``[blocks, bytes]``, a view of the cache itself.
        order: Shape and strides of a block, which say what its bytes mean.
    """

    rows: torch.Tensor
    order: tuple[int, ...]

    @property
    def width(self) -> int:
        """Bytes of a block."""
        return int(self.rows.shape[1])


def as_rows(cache: torch.Tensor) -> Layer:
    """A cache whose first dimension counts blocks, seen as rows of bytes.

    Raises:
        ValueError: If a block's elements do not lie together.
    """
    shape, strides = cache.shape[1:], cache.stride()[1:]
    elements = prod(shape)
    dense, expected = sorted(zip(strides, shape, strict=True)), 1
    for stride, size in dense:
        if size > 1 and stride != expected:
            raise ValueError(f"blocks of shape {tuple(shape)} and strides {strides} have gaps")
        expected *= size
    if cache.shape[0] > 1 and cache.stride(0) < elements:
        raise ValueError(f"blocks of {elements} elements overlap, {cache.stride(0)} apart")
    flat = torch.as_strided(
        cache, (cache.shape[0], elements), (cache.stride(0), 1), cache.storage_offset()
    )
    return Layer(flat.view(torch.uint8), (*shape, *strides, cache.dtype.itemsize))


class PagedBytes(GPUConnectorInterface):  # type: ignore[misc]
    """What LMCache calls a GPU connector; on CPU the same.

    Args:
        chunk_tokens: Tokens of a chunk.
    """

    def __init__(self, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._layers: list[Layer] = []
        self._row_tokens = 0
        self._staging: torch.Tensor | None = None

    def bind(self, caches: Mapping[str, torch.Tensor], *, blocks: int, block_tokens: int) -> None:
        """Take the engine's caches.

        Args:
            caches: By layer, alike in order on all ranks.
            blocks: Blocks the engine hands out.
            block_tokens: Tokens of each.

        Raises:
            ValueError: If they cannot be copied exactly, with what was found.
        """
        layers = [as_rows(cache) for cache in caches.values()]
        counts = {layer.rows.shape[0] for layer in layers}
        if len(counts) != 1:
            raise ValueError(f"layers of {sorted(counts)} blocks")
        rows = counts.pop()
        # An attention kernel may cut the engine's blocks into smaller ones.
        if rows % blocks or (block_tokens * blocks) % rows:
            raise ValueError(f"{rows} blocks in a layer, {blocks} in the engine")
        row_tokens = block_tokens * blocks // rows
        if self._chunk_tokens % block_tokens:
            raise ValueError(
                f"chunks of {self._chunk_tokens} tokens are not whole blocks of {block_tokens}: "
                "set spec.kvCache.chunkTokens to a multiple of the engine's block size"
            )
        self._layers, self._row_tokens = layers, row_tokens
        self.kvcaches = list(caches.values())

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk; 0 before ``bind``."""
        return sum(layer.width for layer in self._layers) * self._chunk_rows

    @property
    def _chunk_rows(self) -> int:
        return self._chunk_tokens // self._row_tokens if self._row_tokens else 0

    @property
    def device(self) -> torch.device:
        """Where the KV is."""
        return self._layers[0].rows.device

    @property
    def layout(self) -> tuple[int | str, ...]:
        """What gives a chunk's bytes their meaning."""
        orders = [number for layer in self._layers for number in (len(layer.order), *layer.order)]
        return ("rows", self._row_tokens, len(self._layers), *orders)

    @property
    def shapes(self) -> tuple[list[torch.Size], list[torch.dtype], MemoryFormat]:
        """How memory for a chunk is asked for."""
        # LMCache's allocators know no format of plain bytes; nothing looks at this one.
        return [torch.Size([self.chunk_bytes])], [torch.uint8], MemoryFormat.KV_2LTD

    def _ids(self, slots: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
        parts = [slots[s : s + self._chunk_tokens : self._row_tokens] for s in starts]
        return torch.cat(parts).to(self.device) // self._row_tokens

    def _stage(self, chunks: int) -> torch.Tensor:
        size = chunks * self.chunk_bytes
        if self._staging is None or self._staging.numel() < size:
            self._staging = torch.empty(size, dtype=torch.uint8, device=self.device)
        return self._staging[:size].view(chunks, self.chunk_bytes)

    def batched_from_gpu(
        self, memory_objs: Any, starts: Sequence[int], ends: Sequence[int], **kwargs: Any
    ) -> None:
        """Copy whole chunks out; the memories hold them when this returns."""
        for first in range(0, len(starts), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            self._gather(
                [self._flat(memory) for memory in memory_objs[some]],
                self._ids(kwargs["slot_mapping"], starts[some]),
            )
        self.settle()

    def _gather(self, targets: Sequence[torch.Tensor], ids: torch.Tensor) -> None:
        staged, offset = self._stage(len(targets)), 0
        for layer in self._layers:
            width = layer.width * self._chunk_rows
            taken = layer.rows.index_select(0, ids)
            staged[:, offset : offset + width] = taken.view(len(targets), width)
            offset += width
        for target, chunk in zip(targets, staged, strict=True):
            target.copy_(chunk, non_blocking=True)
        # The staging memory is used again at once, in the order of this stream.

    def batched_to_gpu(
        self,
        memory_objs: Any = None,
        starts: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy chunks in, but for the blocks that the engine has by itself.

        Does not wait: ``settle`` does, and until then the memories must not be given away.
        """
        begins = list(starts or ())
        have = max(0, kwargs.get("vllm_cached_tokens", 0))
        for first in range(0, len(begins), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            ids = self._ids(kwargs["slot_mapping"], begins[some])
            skip = max(0, have - begins[first]) // self._row_tokens
            self._scatter([self._flat(m) for m in memory_objs[some]], ids, skip)

    def _scatter(self, sources: Sequence[torch.Tensor], ids: torch.Tensor, skip: int) -> None:
        staged, offset = self._stage(len(sources)), 0
        for source, chunk in zip(sources, staged, strict=True):
            chunk.copy_(source, non_blocking=True)
        for layer in self._layers:
            width = layer.width * self._chunk_rows
            rows = staged[:, offset : offset + width].reshape(-1, layer.width)
            layer.rows.index_copy_(0, ids[skip:], rows[skip:])
            offset += width

    def settle(self) -> None:
        """Wait until everything asked for is done; an error of the device is raised here."""
        if self._layers and self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def _flat(self, memory: Any) -> torch.Tensor:
        if not isinstance(memory, torch.Tensor):
            memory = memory.raw_tensor
        flat: torch.Tensor = memory.view(torch.uint8).flatten()[: self.chunk_bytes]
        return flat

    def from_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """One chunk."""
        self.batched_from_gpu([memory_obj], [start], [end], **kwargs)

    def to_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """One chunk."""
        self.batched_to_gpu([memory_obj], [start], [end], **kwargs)
        self.settle()

    def get_shape(self, num_tokens: int) -> torch.Size:
        """The shape of memory for whole chunks of so many tokens."""
        return torch.Size([self.chunk_bytes * num_tokens // self._chunk_tokens])

    def zero(self, ids: torch.Tensor) -> None:
        """Clear whole rows; for the self-test, before any request."""
        for layer in self._layers:
            layer.rows.index_fill_(0, ids.to(self.device), 0)

    @property
    def rows(self) -> int:
        """Rows of each layer."""
        return int(self._layers[0].rows.shape[0])

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk in each layer."""
        return self._chunk_rows

    @property
    def row_tokens(self) -> int:
        """Tokens of a row."""
        return self._row_tokens

    def put(self, ids: torch.Tensor, chunk: torch.Tensor) -> None:
        """Write one chunk's bytes into rows; for the self-test."""
        self._scatter([chunk], ids.to(self.device), 0)
        self.settle()

    def take(self, ids: torch.Tensor) -> torch.Tensor:
        """Read one chunk's bytes out of rows into host memory; for the self-test."""
        out = torch.empty(self.chunk_bytes, dtype=torch.uint8)
        self._gather([out], ids.to(self.device))
        self.settle()
        return out
