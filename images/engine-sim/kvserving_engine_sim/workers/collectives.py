"""What the ranks of an engine do together. Imports torch only where there are several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class Collectives(Protocol):
    """Every rank calls the same operations in the same order."""

    def broadcast(self, tensor: Any, source: int) -> Any:
        """`tensor` of rank `source` into everyone's, in place."""

    def broadcast_object(self, value: Any, source: int) -> Any:
        """The picklable value of rank `source`, on every rank."""

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """The unsigned 64-bit numbers of every rank, by rank; all give equally many."""


class Alone:
    """The collectives of a single rank."""

    def broadcast(self, tensor: Any, source: int) -> Any:
        """Nothing to do."""
        return tensor

    def broadcast_object(self, value: Any, source: int) -> Any:
        """Nothing to do."""
        return value

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Its own numbers."""
        return [numbers]


def join(rank: int, world_size: int, rendezvous: Path) -> Collectives:
    """The collectives of one rank, once all ranks are there."""
    if world_size == 1:
        return Alone()
    from kvserving_engine_sim.workers.gloo import Gloo  # noqa: PLC0415  see the module's docstring

    return Gloo(rank, world_size, rendezvous)
