"""A rank's cache in host memory: LMCache's own, with its memory. Needs LMCache."""

from __future__ import annotations

import threading
from typing import Any, Final

import torch
from lmcache.v1.memory_management import MemoryFormat, MemoryObj, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

REMEMBERED: Final = 1 << 12
"""Chunks whose first appearance LMCache's cache policies remember, for a histogram of lifespans: 1
MB. They would remember 12.5 million, 2 GB of every rank, which fill up whatever the cache holds."""


class LocalCache:
    """A ``fetch.Local`` over LMCache's LocalCPUBackend.

    Args:
        backend: The cache.
        shapes: Of the tensors of a chunk.
        dtypes: Their types.
        fmt: The memory format the engine stores in.
    """

    def __init__(
        self,
        backend: LocalCPUBackend,
        shapes: list[torch.Size],
        dtypes: list[torch.dtype],
        fmt: MemoryFormat,
    ) -> None:
        self._backend = backend
        if hasattr(backend.cache_policy, "max_num_chunk_hash"):
            backend.cache_policy.max_num_chunk_hash = REMEMBERED
        self._shapes = shapes
        self._dtypes = dtypes
        self._fmt = fmt
        self._lock = threading.Lock()
        self._holds = 0

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk."""
        pairs = zip(self._shapes, self._dtypes, strict=True)
        return sum(shape.numel() * dtype.itemsize for shape, dtype in pairs)

    @property
    def layout(self) -> tuple[int | str, ...]:
        """What distinguishes the bytes of a chunk from those of another shape."""
        shapes = [number for shape in self._shapes for number in (len(shape), *shape)]
        return (self._fmt.name, *shapes, *(str(dtype) for dtype in self._dtypes))

    @property
    def held_bytes(self) -> int:
        """Bytes held for loads and stores at present: they cannot be evicted."""
        return self._holds * self.chunk_bytes

    def _hold(self, count: int) -> None:
        with self._lock:
            self._holds += count

    def get(self, key: Any) -> MemoryObj | None:
        """See ``fetch.Local``."""
        memory = self._backend.get_blocking(key)
        if memory is not None:
            self._hold(1)
        return memory

    def allocate(self) -> MemoryObj | None:
        """See ``fetch.Local``; evicts, but never waits for others to give memory back."""
        memory = self._backend.allocate(
            self._shapes, self._dtypes, self._fmt, eviction=True, busy_loop=False
        )
        if memory is not None:
            self._hold(1)
        return memory

    def view(self, memory: MemoryObj) -> memoryview:
        """See ``fetch.Local``."""
        return memoryview(memory.byte_array).cast("B")

    def keep(self, key: Any, memory: MemoryObj) -> None:
        """See ``fetch.Local``."""
        self._backend.batched_submit_put_task([key], [memory])

    def drop(self, key: Any) -> None:
        """Forget a cached chunk, so that it is asked of an instance next time."""
        self._backend.remove(key, force=True)

    def release(self, memory: MemoryObj) -> None:
        """See ``fetch.Local``."""
        memory.ref_count_down()
        self._hold(-1)

    def flat(self, memory: MemoryObj) -> torch.Tensor:
        """The bytes of a chunk as a flat tensor."""
        raw = memory.raw_tensor
        return raw.view(torch.uint8).flatten()[: self.chunk_bytes]

    def wrapped(self, flat: torch.Tensor) -> MemoryObj:
        """A memory object around bytes that belong to somebody else."""
        metadata = MemoryObjMetadata(
            shape=self._shapes[0],
            dtype=self._dtypes[0],
            address=0,
            phy_size=self.chunk_bytes,
            ref_count=1,
            fmt=self._fmt,
            shapes=self._shapes,
            dtypes=self._dtypes,
        )
        return TensorMemoryObj(raw_data=flat, metadata=metadata, parent_allocator=None)
