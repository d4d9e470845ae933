"""The ranks that load together, over torch.distributed. Needs torch.

Messages go over a group of CPU tensors. Chunks go over one of the KV's device: with an accelerator,
copies into the exchange buffer run on a stream of their own and into one half of it, while the
other half is transferred and written into the engine's KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from kvserving_sharded_store.exchange import LENGTH, Status


class TorchGroup:
    """A ``load.Group``.

    Args:
        control: Group for the messages (gloo).
        data: Group for the chunks (gloo or NCCL), with the same ranks in the same order.
        chunk_bytes: Bytes of a chunk.
        most: Chunks of one rank that a transfer carries at most.
        device: Where the KV is.
    """

    def __init__(
        self,
        control: dist.ProcessGroup,
        data: dist.ProcessGroup,
        *,
        chunk_bytes: int,
        most: int,
        device: torch.device,
    ) -> None:
        self._control = control
        self._data = data
        self._chunk_bytes = chunk_bytes
        self._world = dist.get_world_size(control)
        halves = 2 if device.type == "cuda" else 1
        size = most * chunk_bytes
        self._mine = torch.zeros(halves, size, dtype=torch.uint8, device=device)
        self._all = torch.zeros(self._world * size, dtype=torch.uint8, device=device)
        self._count = most
        self._half = 0
        self._copies: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._free: list[Any] = [None] * halves

    def exchange(self, status: Status) -> Sequence[Status]:
        """See ``load.Group``."""
        mine = torch.tensor(status.pack(), dtype=torch.int64)
        everything = torch.empty(self._world * LENGTH, dtype=torch.int64)
        dist.all_gather_into_tensor(everything, mine, group=self._control)
        numbers = everything.tolist()
        return [
            Status.unpack(numbers[rank * LENGTH : (rank + 1) * LENGTH])
            for rank in range(self._world)
        ]

    def stage(self, position: int, memory: torch.Tensor) -> None:
        """See ``load.Group``; the memory is the chunk's bytes as a flat tensor."""
        start = position * self._chunk_bytes
        with self._on_copies():
            target = self._mine[self._half][start : start + self._chunk_bytes]
            target.copy_(memory, non_blocking=True)

    def _on_copies(self) -> AbstractContextManager[Any]:
        if self._copies is None:
            return nullcontext()
        if self._free[self._half] is not None:
            self._copies.wait_event(self._free[self._half])
        context: AbstractContextManager[Any] = torch.cuda.stream(self._copies)
        return context

    def transfer(self, count: int) -> None:
        """See ``load.Group``."""
        self._count = count
        size = count * self._chunk_bytes
        if self._copies is not None:
            torch.cuda.current_stream().wait_stream(self._copies)
        dist.all_gather_into_tensor(
            self._all[: self._world * size], self._mine[self._half][:size], group=self._data
        )
        if self._copies is not None:
            self._free[self._half] = torch.cuda.current_stream().record_event()
            self._half = 1 - self._half

    def received(self, rank: int, position: int) -> torch.Tensor:
        """See ``load.Group``; a flat tensor of the chunk's bytes."""
        start = (rank * self._count + position) * self._chunk_bytes
        return self._all[start : start + self._chunk_bytes]

    def settle(self) -> None:
        """Wait until nothing reads the staged memories any more."""
        if self._copies is not None:
            self._copies.synchronize()
