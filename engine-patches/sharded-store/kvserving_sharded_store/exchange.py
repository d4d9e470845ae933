"""What ranks tell each other about one group of chunks, and what they all conclude. Pure.

Every rank computes the conclusion from the same messages, so all of them come to the same one:
nobody needs to be asked, and nobody can be left behind in a collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b


class Cause(IntEnum):
    """Why a prefix is shorter than what was to be loaded."""

    NONE = 0
    ABSENT = 1
    """An owner's instance does not have the chunk (any more)."""
    FAILED = 2
    """An owner's instance gave no useful answer in time."""
    MEMORY = 3
    """An owner had no memory to put the chunk into."""
    STAGING = 4
    """Copying between the memories of a rank failed."""
    MISMATCH = 5
    """The ranks were not asked for the same."""
    CLOSED = 6
    """The tier is closed on a rank, or the request was given up there."""


LENGTH = 5
"""Numbers in a message."""


@dataclass(frozen=True, slots=True)
class Status:
    """One rank's message about one group.

    Attributes:
        fingerprint: 128 bits that say what is being loaded, see ``fingerprint``.
        group: Number of the group; one more than the last for the closing message.
        failure: First chunk this rank could not do its part for, or the end of the load.
        cause: Why.
    """

    fingerprint: bytes
    group: int
    failure: int
    cause: Cause = Cause.NONE

    def pack(self) -> tuple[int, ...]:
        """As ``LENGTH`` signed 64-bit numbers."""
        halves = (self.fingerprint[:8], self.fingerprint[8:])
        first, second = (int.from_bytes(half, "big", signed=True) for half in halves)
        return first, second, self.group, self.failure, int(self.cause)

    @classmethod
    def unpack(cls, numbers: Sequence[int]) -> Status:
        """The message that ``pack`` made into these numbers."""
        first, second, group, failure, cause = numbers
        halves = (half.to_bytes(8, "big", signed=True) for half in (first, second))
        return cls(b"".join(halves), group, failure, Cause(cause))


def fingerprint(*, epoch: str, start: int, total: int, last: bytes, layout: Sequence[int]) -> bytes:
    """What a load is about, in 16 bytes: equal on all ranks if and only if they do the same.

    Args:
        epoch: Of the keys.
        start: First chunk to load.
        total: One after the last chunk.
        last: Hash of the last chunk, which is one of all chunks before it; empty for none.
        layout: Whatever shapes the groups and the bytes: ranks, buffer, bytes per chunk.
    """
    text = repr((epoch, start, total, last, tuple(layout)))
    return blake2b(text.encode(), digest_size=16, person=b"kvs-load").digest()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks conclude.

    Attributes:
        stop: First chunk that is not loaded.
        cause: Why, none if everything is.
    """

    stop: int
    cause: Cause


def agree(statuses: Sequence[Status], *, start: int, end: int) -> Agreement:
    """The conclusion about one group.

    Args:
        statuses: One message per rank.
        start: First chunk of the whole load: where a mismatch stops it.
        end: One after the last chunk of the whole load.
    """
    if len({(status.fingerprint, status.group) for status in statuses}) != 1:
        return Agreement(start, Cause.MISMATCH)
    # Of several with the same first chunk the lowest rank's cause is told.
    worst = min(statuses, key=lambda status: status.failure)
    if worst.failure >= end:
        return Agreement(end, Cause.NONE)
    return Agreement(max(start, worst.failure), worst.cause)
