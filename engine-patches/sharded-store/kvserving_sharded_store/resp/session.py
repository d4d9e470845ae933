"""One thread's connection to its instance: made when it is needed, made anew when it is lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.breaker import Breaker
from kvserving_sharded_store.resp.connection import Connection
from kvserving_sharded_store.resp.errors import InstanceError
from kvserving_sharded_store.resp.stats import Stats
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options, Part

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 1.0


@dataclass(slots=True)
class Session:
    """What one thread asks its instance over. That thread's alone, but for ``abort``.

    Attributes:
        address: The instance.
        options: How to talk to it.
        breaker: Told what is asked and heard.
        stats: Told what was answered.
        answered: Keys of the latest part that have their answer.
    """

    address: Address
    options: Options
    breaker: Breaker
    stats: Stats
    answered: int = 0
    _connection: Connection | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, which may have been lost since."""
        return self._connection is not None

    def connect(self, deadline: float) -> None:
        """Make a new connection.

        Raises:
            InstanceError: When there is none before the deadline, or within a second.
        """
        self.close()
        began = time.monotonic()
        self.breaker.asked(began)
        try:
            self._connection = Connection.open(
                self.address,
                credentials=self.options.credentials(),
                context=self.options.context,
                deadline=min(deadline, began + _CONNECT_SECONDS),
                low_water=self.options.low_water,
            )
        except (InstanceError, OSError) as error:  # OSError: credentials that cannot be read
            self.stats.add("connect_failures")
            if not self.breaker.is_open:
                _log.warning("%s: %s", self.address, error)
            raise error if isinstance(error, InstanceError) else InstanceError(str(error)) from None
        self.breaker.heard(time.monotonic())
        self.stats.add("connects")

    def abort(self) -> None:
        """From any thread: end the call under way."""
        if self._connection is not None:
            self._connection.abort()

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, part: Part) -> None:
        """Ask for the keys of a part, and settle those that are answered.

        Raises:
            InstanceError: The connection was lost; keys from ``answered`` on have no answer.
        """
        ticket, connection = part.ticket, self._connection
        if connection is None:
            raise InstanceError("not connected")
        began = last = time.monotonic()
        self.answered = 0

        def on_reply(index: int, good: bool) -> None:  # noqa: FBT001 (called by the connection)
            nonlocal last
            now = time.monotonic()
            self.breaker.heard(now)
            self.answered = index + 1
            self._count(ticket, part.start + index, now - last, good=good)
            last = now

        keys = ticket.keys[part.start : part.stop]
        self.breaker.asked(began)
        try:
            if not ticket.verb.carries:
                ask = connection.exists if ticket.verb is Verb.EXISTS else connection.remove
                ask(keys, ticket.deadline, on_reply)
            else:
                call = connection.get if ticket.verb is Verb.GET else connection.set
                values: Sequence[memoryview] = ticket.buffers[part.start : part.stop]
                call(keys, values, ticket.deadline, on_reply)
        except InstanceError:
            self.close()
            raise
        finally:
            if ticket.verb is Verb.GET:
                self.stats.add("fetch_seconds", time.monotonic() - began)
        if connection.aborted:
            self.close()

    def _count(self, ticket: Ticket, index: int, seconds: float, *, good: bool) -> None:
        outcome = Outcome.DONE if good else Outcome.ABSENT
        if ticket.verb is Verb.SET and not good:
            outcome = Outcome.FAILED
        name = ticket.verb.name.lower()
        self.stats.add(f"{name}_{outcome.name.lower()}")
        if good and ticket.verb.carries:
            way = "bytes_read" if ticket.verb is Verb.GET else "bytes_written"
            self.stats.add(way, len(ticket.buffers[index]))
        if ticket.verb is Verb.GET:
            self.stats.observe(seconds)
        ticket.settle(index, outcome)
