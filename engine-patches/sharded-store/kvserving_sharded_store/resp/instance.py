"""One remote instance: a queue, a few threads with a connection each, and a breaker."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.breaker import Breaker
from kvserving_sharded_store.resp.connection import Connection
from kvserving_sharded_store.resp.errors import DeadlineError, InstanceError, ProtocolError
from kvserving_sharded_store.resp.stats import Stats
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options, Part, Work

_log = logging.getLogger(__name__)

_CONNECT_SECONDS: Final = 1.0
_SILENCE_SECONDS: Final = 0.5
"""A deadline missed after so long without a single reply shows that nobody is there."""


class Instance:
    """A remote instance. All methods may be called from any thread, and none of them blocks."""

    def __init__(self, address: Address, options: Options | None = None) -> None:
        self.address = address
        self.stats = Stats()
        self._options = Options() if options is None else options
        self._changed = threading.Condition()
        self._work_left = Work()
        self._running: set[Ticket] = set()
        self._breaker = Breaker(jitter=random.random)
        self._owed = 0
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._work, args=(number == 0,), name=f"kvs-{address}-{number}", daemon=True
            )
            for number in range(self._options.threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the breaker has given the instance up for now."""
        return self._breaker.is_open

    @property
    def owed(self) -> int:
        """Bytes asked for and not here, given up or failed yet."""
        return self._owed

    def submit(self, ticket: Ticket) -> None:
        """Ask for a batch; the ticket tells what becomes of it."""
        size = len(ticket.keys)
        asked = sum(map(len, ticket.buffers)) if ticket.verb is Verb.GET else 0
        with self._changed:
            useless = self._closed or self._breaker.is_open
            if not useless:
                self._owed += asked
                self._work_left.add(ticket, self._options)
                self._changed.notify(self._options.threads)
        if useless:
            self._settle(Part(ticket, 0, size), Outcome.FAILED)
        elif asked:
            ticket.when_final(lambda _ticket: self._paid(asked))

    def close(self, seconds: float = 2.0) -> bool:
        """Cancel everything and end the threads.

        Returns:
            Whether all threads ended in time; one that looks a name up cannot be interrupted, and
            is left behind as a daemon without any buffer.
        """
        with self._changed:
            self._closed = True
            parts = self._work_left.drain()
            running = list(self._running)
            self._changed.notify_all()
        for part in parts:
            self._settle(part, Outcome.CANCELLED)
        for ticket in running:
            ticket.cancel()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _paid(self, amount: int) -> None:
        with self._changed:
            self._owed -= amount

    def _settle(self, part: Part, outcome: Outcome) -> None:
        for index in range(part.start, part.stop):
            self.stats.add(f"{part.ticket.verb.name.lower()}_{outcome.name.lower()}")
            part.ticket.settle(index, outcome)

    # The threads.

    def _work(self, medic: bool) -> None:  # noqa: FBT001 (a thread's argument)
        connection: Connection | None = None
        while True:
            part = self._next(medic=medic)
            if part is None:
                break
            try:
                if isinstance(part, Part):
                    connection = self._serve(part, connection)
                else:
                    connection = self._retry(connection)
            except Exception:  # noqa: BLE001 (a thread that ends would leave its callers waiting)
                _log.exception("a thread of %s lost its connection", self.address)
                if connection is not None:
                    connection.close()
                    connection = None
                if isinstance(part, Part):
                    self._settle(part, Outcome.FAILED)
        if connection is not None:
            connection.close()

    def _next(self, *, medic: bool) -> Part | float | None:
        """The next part; a number when it is time to try the instance again; none at the end."""
        with self._changed:
            while not self._closed:
                if self._breaker.is_open:
                    wait = self._breaker.retry_at - time.monotonic()
                    if medic and wait <= 0:
                        return wait
                    self._changed.wait(wait if medic else None)
                    continue
                part = self._work_left.pop()
                if part is not None:
                    return part
                self._changed.wait()
        return None

    def _serve(self, part: Part, connection: Connection | None) -> Connection | None:
        """Answer one part; the connection to go on with."""
        if part.ticket.given_up:
            self._settle(part, Outcome.CANCELLED)
            return connection
        fresh = connection is None
        if connection is None:
            connection = self._connect(part.ticket.deadline)
            if connection is None:
                self._settle(part, Outcome.FAILED)
                return None
        token = part.ticket.claim(part.start, part.stop, connection.abort)
        if token is None:
            self._settle(part, Outcome.CANCELLED)
            return connection
        with self._changed:
            self._running.add(part.ticket)
            closed = self._closed
        if closed:
            part.ticket.cancel()
        try:
            return self._ask(part, connection, fresh=fresh)
        finally:
            part.ticket.release(token)
            with self._changed:
                self._running.discard(part.ticket)

    def _ask(self, part: Part, connection: Connection, *, fresh: bool) -> Connection | None:
        ticket, answered = part.ticket, 0
        began = last = time.monotonic()

        def on_reply(index: int, good: bool) -> None:  # noqa: FBT001 (called by the connection)
            nonlocal answered, last
            now = time.monotonic()
            answered = index + 1
            self._count(ticket, part.start + index, now - last, good=good)
            last = now

        keys = ticket.keys[part.start : part.stop]
        try:
            self._send(connection, ticket, keys, part, on_reply)
        except InstanceError as error:
            connection.close()
            rest = replace(part, start=part.start + answered)
            silent = answered == 0 and time.monotonic() - began >= _SILENCE_SECONDS
            self._after(error, rest, fresh=fresh, silent=silent)
            return None
        finally:
            if ticket.verb is Verb.GET:
                self.stats.add("fetch_seconds", time.monotonic() - began)
        self._succeeded()
        if connection.aborted:
            connection.close()
            return None
        return connection

    @staticmethod
    def _send(
        connection: Connection,
        ticket: Ticket,
        keys: Sequence[bytes],
        part: Part,
        on_reply: Callable[[int, bool], None],
    ) -> None:
        if not ticket.verb.carries:
            ask = connection.exists if ticket.verb is Verb.EXISTS else connection.remove
            ask(keys, ticket.deadline, on_reply)
            return
        call = connection.get if ticket.verb is Verb.GET else connection.set
        call(keys, ticket.buffers[part.start : part.stop], ticket.deadline, on_reply)

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

    def _after(self, error: InstanceError, rest: Part, *, fresh: bool, silent: bool) -> None:
        """What becomes of the keys without an answer, and of the instance."""
        if rest.ticket.given_up:
            self._settle(rest, Outcome.CANCELLED)
            # Whoever waits gives up at the same deadline as this thread, or before: that must not
            # hide an instance that never answers.
            if silent or time.monotonic() >= rest.ticket.deadline:
                self._failed(doubtful=not silent)
        elif isinstance(error, ProtocolError):
            self._settle(replace(rest, stop=rest.start + 1), Outcome.FAILED)
            self._failed(doubtful=True)
            self._again(replace(rest, start=rest.start + 1))
        elif isinstance(error, DeadlineError):
            self._settle(rest, Outcome.FAILED)
            self._failed(doubtful=not silent)
        elif fresh or rest.retried:
            self._settle(rest, Outcome.FAILED)
            self._failed(doubtful=False)
        else:
            # A connection that was idle may have died long ago; that says nothing of now.
            self._again(replace(rest, retried=True))

    def _again(self, part: Part) -> None:
        if part.start >= part.stop:
            return
        with self._changed:
            useless = self._closed or self._breaker.is_open
            if not useless:
                self._work_left.again(part)
                self._changed.notify()
        if useless:
            self._settle(part, Outcome.FAILED)

    def _connect(self, deadline: float) -> Connection | None:
        by = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        try:
            connection = Connection.open(
                self.address,
                credentials=self._options.credentials(),
                context=self._options.context,
                deadline=by,
                low_water=self._options.low_water,
            )
        except (InstanceError, OSError) as error:  # OSError: credentials that cannot be read
            self.stats.add("connect_failures")
            if not self._breaker.is_open:
                _log.warning("%s: %s", self.address, error)
            self._failed(doubtful=False)
            return None
        self.stats.add("connects")
        return connection

    def _retry(self, connection: Connection | None) -> Connection | None:
        if connection is not None:
            connection.close()
        connection = self._connect(time.monotonic() + _CONNECT_SECONDS)
        if connection is not None:
            self._succeeded()
        return connection

    def _succeeded(self) -> None:
        with self._changed:
            was_open = self._breaker.is_open
            self._breaker.succeeded()
            if was_open:
                self._changed.notify_all()

    def _failed(self, *, doubtful: bool) -> None:
        with self._changed:
            was_open = self._breaker.is_open
            now = time.monotonic()
            if doubtful:
                self._breaker.doubted(now)
            else:
                self._breaker.failed(now)
            opened = self._breaker.is_open and not was_open
            parts = self._work_left.drain() if opened else []
            self._changed.notify_all()
        if opened:
            self.stats.add("breaker_openings")
        for part in parts:
            self._settle(part, Outcome.FAILED)
