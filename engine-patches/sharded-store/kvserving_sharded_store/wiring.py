"""Ties the load protocol to an LMCache engine's memory objects. Needs LMCache and torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kvserving_sharded_store.group import TorchGroup
from kvserving_sharded_store.local import LocalCache


class EngineKv:
    """A ``load.Sink``: the serving engine's KV."""

    def __init__(self, engine: Any, local: LocalCache, arguments: dict[str, Any]) -> None:
        self._engine = engine
        self._local = local
        self._arguments = arguments

    def write(self, chunks: Sequence[int], memories: Sequence[Any]) -> None:
        """See ``load.Sink``."""
        size = self._engine.config.chunk_size
        objects = [
            self._local.wrapped(memory) if isinstance(memory, torch.Tensor) else memory
            for memory in memories
        ]
        starts = [chunk * size for chunk in chunks]
        ends = [start + size for start in starts]
        self._engine.gpu_connector.batched_to_gpu(objects, starts, ends, **self._arguments)


class EngineGroup(TorchGroup):
    """Stages LMCache's memory objects."""

    def __init__(self, local: LocalCache, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._local = local

    def stage(self, position: int, memory: Any) -> None:
        """See ``load.Group``."""
        super().stage(position, self._local.flat(memory))
