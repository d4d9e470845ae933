"""Collectives over all W ranks by torch.distributed's gloo backend, on the loopback interface."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# A rank that does not come to a collective within this time ends the engine. Loads happen inside
# one: LMCache waits up to 10 s for the tier on rank 0 while the others wait for its broadcast.
_TIMEOUT = timedelta(seconds=60)


class Gloo:
    """The world group, as rank `rank` of it; `rendezvous` is a file that does not exist yet."""

    def __init__(self, rank: int, world_size: int, rendezvous: Path) -> None:
        self._world_size = world_size
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo",
            init_method=rendezvous.as_uri(),
            rank=rank,
            world_size=world_size,
            timeout=_TIMEOUT,
        )

    def broadcast(self, tensor: Any, source: int) -> Any:
        """`tensor` of rank `source` into everyone's, in place."""
        dist.broadcast(tensor, source)
        return tensor

    def broadcast_object(self, value: Any, source: int) -> Any:
        """The picklable value of rank `source`, on every rank."""
        box = [value]
        dist.broadcast_object_list(box, source)
        return box[0]

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """The unsigned 64-bit numbers of every rank, by rank; all give equally many."""
        signed = [number - (1 << 64) if number >> 63 else number for number in numbers]
        mine = torch.tensor(signed, dtype=torch.int64)
        everyone = [torch.empty_like(mine) for _ in range(self._world_size)]
        dist.all_gather(everyone, mine)
        return [[number % (1 << 64) for number in rank.tolist()] for rank in everyone]
