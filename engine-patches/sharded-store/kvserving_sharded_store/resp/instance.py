"""One remote instance: a queue, a few threads with a connection each, and a breaker."""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.breaker import Breaker
from kvserving_sharded_store.resp.errors import DeadlineError, InstanceError, ProtocolError
from kvserving_sharded_store.resp.session import Session
from kvserving_sharded_store.resp.stats import Stats
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options, Part, Work

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class _Retry(Enum):
    """Told to one thread: find out whether the instance is back."""

    NOW = auto()


class Instance:
    """A remote instance. All methods may be called from any thread, and none of them blocks."""

    def __init__(self, address: Address, options: Options | None = None) -> None:
        self.address = address
        self.stats = Stats()
        self._options = Options() if options is None else options
        self._changed = threading.Condition()
        self._work_left = Work()
        self._running: set[Part] = set()
        self._breaker = Breaker(jitter=random.random)
        self._owed = 0
        self._closed = False
        self._retrying = False
        self._threads = [
            threading.Thread(target=self._work, name=f"kvs-{address}-{number}", daemon=True)
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
        """Cancel everything and end the threads: ``stop``, then ``ended``."""
        self.stop()
        return self.ended(time.monotonic() + seconds)

    def stop(self) -> None:
        """Cancel everything, now and from now on; does not wait."""
        with self._changed:
            self._closed = True
            parts = self._work_left.drain()
            running = {part.ticket for part in self._running}
            self._changed.notify_all()
        for part in parts:
            self._settle(part, Outcome.CANCELLED)
        for ticket in running:
            ticket.cancel()

    def ended(self, until: float) -> bool:
        """Whether all threads have ended by this monotonic second; after ``stop``.

        One that connects goes on for a second at most. One that looks a name up cannot be
        interrupted, and is left behind as a daemon without any buffer.
        """
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

    def _work(self) -> None:
        session = Session(self.address, self._options, self._breaker, self.stats)
        while (part := self._next()) is not None:
            try:
                if isinstance(part, Part):
                    self._serve(part, session)
                else:
                    self._retry(session)
            except Exception:  # noqa: BLE001 (a thread that ends would leave its callers waiting)
                _log.exception("a thread of %s lost its connection", self.address)
                session.close()
                if isinstance(part, Part):
                    self._settle(part, Outcome.FAILED)
        session.close()

    def _next(self) -> Part | _Retry | None:
        """The next part, or that it is time to try the instance again; none at the end."""
        with self._changed:
            while not self._closed:
                if not self._breaker.is_open:
                    part = self._work_left.pop()
                    if part is not None:
                        return part
                    self._changed.wait()
                    continue
                wait = self._breaker.retry_at - time.monotonic()
                if wait <= 0 and not self._retrying:
                    # Whichever thread is free: others may wait for the dead instance yet.
                    self._retrying = True
                    return _Retry.NOW
                self._changed.wait(None if self._retrying else wait)
        return None

    def _serve(self, part: Part, session: Session) -> None:
        """Answer one part."""
        if part.ticket.given_up:
            self._settle(part, Outcome.CANCELLED)
            return
        if time.monotonic() >= part.ticket.deadline:
            # It waited here for too long: neither the instance's fault nor the connection's.
            self._settle(part, Outcome.FAILED)
            return
        # Known from here on, so that whoever waits for it does not wait for a connection to a host
        # that says nothing, or for the look-up of its name, when the instance is closed.
        with self._changed:
            self._running.add(part)
            closed = self._closed
        if closed:
            part.ticket.cancel()
        try:
            self._ask(part, session)
        finally:
            with self._changed:
                self._running.discard(part)

    def _ask(self, part: Part, session: Session) -> None:
        # Where one connection was lost, the others are no younger.
        fresh = part.retried or not session.is_connected
        if fresh:
            try:
                session.connect(part.ticket.deadline)
            except InstanceError as error:
                self._failed(error)
                self._settle(part, Outcome.FAILED)
                return
        token = part.ticket.claim(part.start, part.stop, session.abort)
        if token is None:
            self._settle(part, Outcome.CANCELLED)
            return
        try:
            session.ask(part)
            self._succeeded()
        except InstanceError as error:
            self._after(error, replace(part, start=part.start + session.answered), fresh=fresh)
        finally:
            part.ticket.release(token)

    def _after(self, error: InstanceError, rest: Part, *, fresh: bool) -> None:
        """What becomes of the instance, and of the keys without an answer."""
        if rest.ticket.given_up:
            # Whoever waits gives up at the same deadline as this thread, or before: that must not
            # hide an instance that never answers.
            self._failed(DeadlineError("given up"))
            self._settle(rest, Outcome.CANCELLED)
        elif isinstance(error, ProtocolError):
            self._failed(error)
            self._settle(replace(rest, stop=rest.start + 1), Outcome.FAILED)
            self._again(replace(rest, start=rest.start + 1))
        elif isinstance(error, DeadlineError) or fresh:
            self._failed(error)
            self._settle(rest, Outcome.FAILED)
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

    def _retry(self, session: Session) -> None:
        back = False
        try:
            session.connect(time.monotonic() + _RETRY_SECONDS)
            back = True
        except InstanceError as error:
            _log.debug("%s: still %s", self.address, error)
        finally:
            with self._changed:
                self._retrying = False
                if back:
                    self._breaker.succeeded()
                else:
                    self._breaker.failed(time.monotonic())
                self._changed.notify_all()

    def _succeeded(self) -> None:
        with self._changed:
            was_open = self._breaker.is_open
            self._breaker.succeeded()
            if was_open:
                self._changed.notify_all()

    def _failed(self, error: InstanceError) -> None:
        """Conclude from an error what the instance is worth; nothing new while it is given up."""
        with self._changed:
            if self._breaker.is_open:
                return
            now = time.monotonic()
            if isinstance(error, ProtocolError):
                self._breaker.doubted(now)
            elif not isinstance(error, DeadlineError) or self._breaker.is_silent(now):
                self._breaker.failed(now)
            if not self._breaker.is_open:
                return
            self.stats.add("breaker_openings")
            parts = self._work_left.drain()
            self._changed.notify_all()
        for part in parts:
            self._settle(part, Outcome.FAILED)
