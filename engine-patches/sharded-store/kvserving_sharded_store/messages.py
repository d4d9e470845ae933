"""What the scheduler's process and the ranks tell each other. Needs msgspec, which LMCache has."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import msgspec


@dataclass(frozen=True, slots=True)
class Probe:
    """How much of this could you bring?"""

    name: str
    serial: int
    hashes: list[bytes]
    tags: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring your share of so many leading tokens of what was probed."""

    name: str
    serial: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Give back what is held for a request."""

    name: str
    serial: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Read some chunks again, so that the tier's bandwidth is known."""

    chunks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """So many tokens could be brought, or have arrived; so many bytes of them from instances."""

    rank: int
    name: str
    serial: int
    tokens: int
    here: bool
    read: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """How a rank is."""

    rank: int
    closed: str | None
    instances: int
    open_breakers: int
    counts: dict[str, float]


Message = Probe | Fetch | Drop | Sample | Answer | Report

_KINDS: Final[tuple[type[Message], ...]] = (Probe, Fetch, Drop, Sample, Answer, Report)


def pack(message: Message) -> bytes:
    """A message as bytes: its kind's number and its fields in order."""
    values = [getattr(message, each.name) for each in fields(message)]
    return msgspec.msgpack.encode([_KINDS.index(type(message)), *values])  # type: ignore[no-any-return]


def unpack(data: bytes) -> Message:
    """The message that ``pack`` made into these bytes."""
    number, *values = msgspec.msgpack.decode(data)
    made: Message = _KINDS[number](*values)
    return made
