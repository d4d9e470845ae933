"""What waits for an instance's threads, most urgent first. Not locked: its owner has a lock."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvserving_sharded_store.resp.connection import Credentials
from kvserving_sharded_store.resp.ticket import Ticket, Verb

_URGENCY: Final = (Verb.EXISTS, Verb.GET, Verb.SET, Verb.REMOVE)
"""A lookup holds up a request before anything is loaded for it; a store holds up nobody."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to talk to an instance.

    Attributes:
        credentials: Asked for at every connect, so that a rotated password is picked up.
        context: TLS verification; needed for TLS addresses only.
        threads: Connections, one thread each.
        pipeline: Keys a thread asks for at once.
        low_water: Bytes that must have come before the reader of a large value is woken, 0 for any:
            a tenth less CPU time, for one more read, which beside a busy main thread waits for the
            interpreter's lock.
    """

    credentials: Callable[[], Credentials | None] = lambda: None
    context: ssl.SSLContext | None = None
    threads: int = 4
    pipeline: int = 16
    low_water: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Keys ``start .. stop-1`` of a ticket, for one thread.

    Attributes:
        ticket: The batch.
        start: First key.
        stop: One after the last.
        retried: Whether a connection was lost under it before.
    """

    ticket: Ticket
    start: int
    stop: int
    retried: bool = False


class Work:
    """Parts by urgency, in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[Verb, deque[Part]] = {verb: deque() for verb in _URGENCY}

    def add(self, ticket: Ticket, options: Options) -> None:
        """Cut a ticket so that all threads share it."""
        size = len(ticket.keys)
        step = size
        if ticket.verb.carries:
            step = min(-(-size // options.threads), options.pipeline)
        self._queues[ticket.verb].extend(
            Part(ticket, start, min(start + step, size)) for start in range(0, size, max(1, step))
        )

    def again(self, part: Part) -> None:
        """A part that goes first, because it was begun."""
        self._queues[part.ticket.verb].appendleft(part)

    def pop(self) -> Part | None:
        """The most urgent part."""
        for queue in self._queues.values():
            if queue:
                return queue.popleft()
        return None

    def drain(self) -> list[Part]:
        """Everything; nothing is left."""
        parts = [part for queue in self._queues.values() for part in queue]
        for queue in self._queues.values():
            queue.clear()
        return parts
