"""Ties the load protocol to an LMCache engine's memory objects. Needs LMCache and torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from kvserving_sharded_store.blocks import PagedBytes
from kvserving_sharded_store.group import TorchGroup
from kvserving_sharded_store.local import LocalCache


class EngineKv:
    """A ``load.Sink``: the serving engine's KV."""

    def __init__(self, engine: Any, arguments: dict[str, Any]) -> None:
        self._engine = engine
        self._arguments = arguments

    def write(self, chunks: Sequence[int], memories: Sequence[Any]) -> None:
        """See ``load.Sink``."""
        size = self._engine.config.chunk_size
        objects = list(memories)
        if not isinstance(self._engine.gpu_connector, PagedBytes):
            objects = [
                self._engine.parts.local.wrapped(memory)
                if isinstance(memory, torch.Tensor)
                else memory
                for memory in memories
            ]
        starts = [chunk * size for chunk in chunks]
        ends = [start + size for start in starts]
        self._engine.gpu_connector.batched_to_gpu(objects, starts, ends, **self._arguments)

    def settle(self) -> None:
        """See ``load.Sink``."""
        if isinstance(self._engine.gpu_connector, PagedBytes):
            self._engine.gpu_connector.settle()


class EngineGroup(TorchGroup):
    """Stages LMCache's memory objects."""

    def __init__(self, local: LocalCache, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._local = local

    def stage(self, position: int, memory: Any) -> None:
        """See ``load.Group``."""
        super().stage(position, self._local.flat(memory))


def all_ranks(world: int, rank: int) -> tuple[Any, Any] | None:
    """Groups of exactly the engine's ranks, in their order: for messages, and for chunks.

    vLLM's group of one engine without its data-parallel siblings; elsewhere the default group. Not
    the tensor-parallel group, which stock LMCache takes: it has one member under prefill context
    parallelism. None when there is no such group.
    """
    if not dist.is_initialized():
        return None
    for control, data in _candidates():
        if dist.get_world_size(control) == world and dist.get_rank(control) == rank:
            return control, data
    return None


def _candidates() -> list[tuple[Any, Any]]:
    found = []
    state = sys.modules.get("vllm.distributed.parallel_state")
    for name in ("_INNER_DP_WORLD", "_WORLD"):
        group = getattr(state, name, None)
        if group is not None:
            found.append((group.cpu_group, group.device_group))
    if not found:
        found.append((dist.group.WORLD, dist.group.WORLD))
    return found
