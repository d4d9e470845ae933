"""The ranks that load together, over torch.distributed. Needs torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from kvserving_sharded_store.exchange import LENGTH, Status


class TorchGroup:
    """A ``load.Group``: messages over a group of CPU tensors, chunks over one of the KV's device.

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
        self._mine = torch.zeros(most * chunk_bytes, dtype=torch.uint8, device=device)
        self._all = torch.zeros(self._world * most * chunk_bytes, dtype=torch.uint8, device=device)
        self._count = most

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
        self._mine[start : start + self._chunk_bytes].copy_(memory, non_blocking=True)

    def transfer(self, count: int) -> None:
        """See ``load.Group``."""
        self._count = count
        size = count * self._chunk_bytes
        dist.all_gather_into_tensor(
            self._all[: self._world * size], self._mine[:size], group=self._data
        )

    def received(self, rank: int, position: int) -> torch.Tensor:
        """See ``load.Group``; a flat tensor of the chunk's bytes."""
        start = (rank * self._count + position) * self._chunk_bytes
        return self._all[start : start + self._chunk_bytes]
