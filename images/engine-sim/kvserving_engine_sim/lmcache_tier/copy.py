"""Copies KV between the paged cache and LMCache's memory objects, all on the CPU.

LMCache calls the interface a GPU connector; here both sides are host memory, and a slot is copied
as it lies, so that stored bytes do not depend on the block size.
"""

from __future__ import annotations

from typing import Any

import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface


class SlotCopy(GPUConnectorInterface):  # type: ignore[misc]
    """`layers` are the paged tensors [parts, slots, width], one a layer."""

    def __init__(self, layers: list[Any]) -> None:
        self._layers = layers
        self.kvcaches = layers

    def from_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """Paged cache to memory object [parts, layers, tokens, width]."""
        slots = kwargs["slot_mapping"][start:end]
        for number, layer in enumerate(self._layers):
            memory_obj.tensor[:, number] = layer[:, slots]

    def to_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """Memory object to paged cache; tokens that the cache had already are left alone."""
        have = max(0, kwargs.get("vllm_cached_tokens", 0) - start)
        slots = kwargs["slot_mapping"][start + have : end]
        for number, layer in enumerate(self._layers):
            layer[:, slots] = memory_obj.tensor[:, number, have:]

    def batched_from_gpu(
        self, memory_objs: Any, starts: list[int], ends: list[int], **kwargs: Any
    ) -> None:
        """Several objects."""
        for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(memory_obj, start, end, **kwargs)

    def batched_to_gpu(
        self,
        memory_objs: Any = None,
        starts: list[int] | None = None,
        ends: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Several objects."""
        for memory_obj, start, end in zip(memory_objs, starts or [], ends or [], strict=True):
            self.to_gpu(memory_obj, start, end, **kwargs)

    def get_shape(self, num_tokens: int) -> Any:
        """The shape of a memory object for so many tokens."""
        parts, _, width = self._layers[0].shape
        return torch.Size([parts, len(self._layers), num_tokens, width])
