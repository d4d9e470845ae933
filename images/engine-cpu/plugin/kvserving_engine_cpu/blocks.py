"""LMCache's in-process connector for vLLM's CPU backend, which stock LMCache lacks.

On CPU the paged KV cache is plain host memory, so whole blocks are copied as they lie, whatever
order the attention kernel keeps inside one. Hence LMCache's chunk must be a multiple of vLLM's
block, and the stored values are of use only to CPU engines with the same block size.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import lmcache.v1.gpu_connector as factory
import torch
from lmcache import torch_device_type
from lmcache.utils import EngineType
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from lmcache.v1.memory_management import MemoryFormat
from vllm.config import get_current_vllm_config_or_none

from kvserving_engine_cpu import layout
from kvserving_engine_cpu.versions import made_for

logger = logging.getLogger("vllm.kvserving_engine_cpu")


class BlockCopy(GPUConnectorInterface):  # type: ignore[misc]  # LMCache ships no types
    """Moves whole blocks between vLLM's paged cache and LMCache's memory objects."""

    def __init__(self, kv_shape: Sequence[int], *, mla: bool) -> None:
        """`kv_shape` as in LMCache: layers, parts (K, V or one latent), chunk, heads, head size."""
        self.layers, self.parts, self.chunk, heads, head_size = kv_shape
        self.width = heads * head_size
        self.mla = mla
        self.block = 0
        self.kvcaches: list[torch.Tensor] = []

    def initialize_kvcaches_ptr(self, **kwargs: Any) -> None:
        """Takes the layers' paged caches, of which the first dimension counts blocks."""
        caches = kwargs.get("kvcaches")
        if caches is None:
            return
        self.kvcaches = list(caches.values() if isinstance(caches, Mapping) else caches)
        if not self.block:
            shape = tuple(self.kvcaches[0].shape[1:])
            self.block = layout.tokens_per_block(shape, self.parts * self.width)
            layout.check_chunk(self.chunk, self.block)

    def _blocks(self, start: int, end: int, slots: torch.Tensor) -> torch.Tensor:
        first, last, step = layout.span(start, end, self.block)
        return slots[first:last:step] // self.block

    def from_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """Copies the blocks of tokens start..end of `slot_mapping` into a memory object."""
        self.initialize_kvcaches_ptr(**kwargs)
        blocks = self._blocks(start, end, kwargs["slot_mapping"])
        for layer, cache in enumerate(self.kvcaches):
            data = cache[blocks].reshape(self.parts, end - start, self.width)
            memory_obj.tensor[:, layer].copy_(data)
        if self.mla:
            memory_obj.metadata.fmt = MemoryFormat.KV_MLA_FMT

    def to_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        """Copies a memory object into the blocks that vLLM's own prefix cache does not hold yet."""
        self.initialize_kvcaches_ptr(**kwargs)
        blocks = self._blocks(start, end, kwargs["slot_mapping"])
        skip = layout.already_there(start, kwargs.get("vllm_cached_tokens", 0), self.block)
        for layer, cache in enumerate(self.kvcaches):
            data = memory_obj.tensor[:, layer].reshape(len(blocks), *cache.shape[1:])
            cache[blocks[skip:]] = data[skip:]

    def batched_from_gpu(
        self, memory_objs: Sequence[Any], starts: Sequence[int], ends: Sequence[int], **kwargs: Any
    ) -> None:
        """Several chunks of one request."""
        for obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(obj, start, end, **kwargs)

    def batched_to_gpu(
        self,
        memory_objs: Sequence[Any] | None = None,
        starts: Sequence[int] | None = None,
        ends: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Several chunks of one request."""
        for obj, start, end in zip(memory_objs or (), starts or (), ends or (), strict=True):
            self.to_gpu(obj, start, end, **kwargs)

    def get_shape(self, num_tokens: int) -> torch.Size:
        """The shape of a memory object for this many tokens."""
        return torch.Size([self.parts, self.layers, num_tokens, self.width])


def cpu_connector(config: Any, metadata: Any) -> BlockCopy:
    """The connector for one engine; raises ValueError for settings that cannot work on CPU."""
    if config.use_layerwise or config.enable_blending:
        raise ValueError("LMCache's use_layerwise and enable_blending have no CPU implementation")
    current = get_current_vllm_config_or_none()
    if current is not None:  # tell at start what the first store would tell otherwise
        layout.check_chunk(config.chunk_size, current.cache_config.block_size)
    logger.info("LMCache moves whole KV blocks on CPU, chunk size %d", config.chunk_size)
    return BlockCopy(metadata.kv_shape, mla=metadata.use_mla)


def rebind() -> None:
    """Makes LMCache's connector factory know the CPU; every other case goes the stock way."""
    stock = factory.CreateGPUConnector
    if getattr(stock, "kvserving", False) or not made_for("lmcache", "0.5.6", "the CPU connector"):
        return

    @functools.wraps(stock)  # whoever looks at the parameters sees the stock ones
    def create(config: Any, metadata: Any, engine: Any, *args: Any, **kwargs: Any) -> Any:
        if engine == EngineType.VLLM and torch_device_type == "cpu":
            return cpu_connector(config, metadata)
        return stock(config, metadata, engine, *args, **kwargs)

    create.kvserving = True  # type: ignore[attr-defined]
    factory.CreateGPUConnector = create
