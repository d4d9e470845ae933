"""How a load is cut into groups of chunks. Pure.

All ranks must enter the same collectives, so the groups follow from three numbers that every rank
has alike: the chunks to load, the ranks, and the exchange buffer. What a rank found, how fast it is
or what it costs is never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_BYTES: Final = 4 << 20
"""Bytes a rank contributes to a group at least, while there are so many: below that the fixed cost
of a group's two collectives outweighs what overlapping them with the next fetch saves."""

_GROUPS: Final = 4
"""Groups aimed at: of G groups all but the first are fetched and staged while another one is
exchanged, so 4 already hide three quarters of the shorter of the two."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The exchange buffer, in chunks per rank and group.

    Attributes:
        most: Chunks of one rank that fit one half of the double buffer.
        least: Chunks of one rank below which cutting finer does not pay.
    """

    most: int
    least: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"an exchange buffer of {self.least} to {self.most} chunks a rank")

    @classmethod
    def of(cls, *, size: int, chunk_bytes: int, world: int) -> Buffer:
        """The buffer that ``size`` bytes make for chunks of ``chunk_bytes``.

        One half receives while the other is written into the engine's KV, and a half holds one
        group, that is the same number of chunks of every rank.

        Raises:
            ValueError: If not even one chunk of every rank fits a half.
        """
        most = size // (2 * world * chunk_bytes)
        if most < 1:
            needed = 2 * world * chunk_bytes
            raise ValueError(f"an exchange buffer of {size} bytes, {needed} are needed")
        return cls(most=most, least=min(most, max(1, _LEAST_BYTES // chunk_bytes)))


def per_rank(total: int, world: int, buffer: Buffer) -> int:
    """Chunks of one rank in a full group."""
    share = -(-total // world)
    return max(1, min(buffer.most, share, max(buffer.least, -(-share // _GROUPS))))


def groups(total: int, world: int, buffer: Buffer) -> tuple[range, ...]:
    """Absolute chunk indexes of each group, in order, together ``0 .. total-1``.

    Every group but the last holds the same number of chunks of every rank; in the last one a rank
    may have fewer (and none when fewer chunks than ranks are left), which the transfer pads.
    """
    step = per_rank(total, world, buffer) * world
    return tuple(range(start, min(start + step, total)) for start in range(0, total, step))
