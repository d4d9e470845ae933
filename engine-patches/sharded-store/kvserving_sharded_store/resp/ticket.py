"""One batch asked of an instance, followed by whoever asked. Safe to use from several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto


class Outcome(Enum):
    """What became of one key."""

    DONE = auto()
    """Its value is in the buffer; it is stored; it exists."""
    ABSENT = auto()
    """The instance does not have it."""
    FAILED = auto()
    """No answer, or a useless one."""
    CANCELLED = auto()
    """Given up by who asked, or by the deadline."""


class Verb(Enum):
    """What is asked."""

    GET = auto()
    SET = auto()
    EXISTS = auto()
    REMOVE = auto()

    @property
    def carries(self) -> bool:
        """Whether values go with the keys."""
        return self in {Verb.GET, Verb.SET}


class Ticket:
    """A batch of keys, each with its outcome.

    A buffer may be written until its key is final, whatever the caller gave up; so buffers are
    freed in ``when_final`` and nowhere else.

    Args:
        verb: What is asked.
        keys: Of what.
        buffers: One per key for GET and SET, each of at least one byte; else none.
        deadline: Monotonic second by which all of it must be over.

    Raises:
        ValueError: If keys and buffers do not fit each other.
    """

    def __init__(
        self,
        verb: Verb,
        keys: Sequence[bytes],
        buffers: Sequence[memoryview],
        deadline: float,
    ) -> None:
        fitting = len(buffers) == (len(keys) if verb.carries else 0)
        if not fitting or not all(len(buffer) for buffer in buffers):
            raise ValueError("one buffer of at least one byte per key for values, else none")
        self.verb = verb
        self.keys = keys
        self.buffers = buffers
        self.deadline = deadline
        self._changed = threading.Condition()
        self._outcomes: list[Outcome | None] = [None] * len(keys)
        self._left = len(keys)
        self._given_up = False
        self._callbacks: list[Callable[[Ticket], None]] = []
        self._claims: dict[int, tuple[int, int, Callable[[], None]]] = {}
        self._next_token = 0

    @property
    def given_up(self) -> bool:
        """Whether it was cancelled."""
        return self._given_up

    @property
    def is_final(self) -> bool:
        """Whether every key has its outcome."""
        return self._left == 0

    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes so far; what is not final yet counts as cancelled."""
        with self._changed:
            return tuple(Outcome.CANCELLED if o is None else o for o in self._outcomes)

    def wait(self) -> tuple[Outcome, ...]:
        """Outcomes when all are final, or at the deadline, when the rest is given up."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._left == 0 or self._given_up,
                timeout=max(0.0, self.deadline - time.monotonic()),
            )
        if not self.is_final:
            self.cancel()
        return self.outcomes()

    def when_final(self, callback: Callable[[Ticket], None]) -> None:
        """Call when every key is final, at once if it is; from whichever thread finishes it.

        The callback must neither wait nor raise.
        """
        with self._changed:
            if self._left:
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        """Give up: what no thread has begun is final at once, reads under way are broken off."""
        with self._changed:
            self._given_up = True
            # Under the lock, so that no connection is hit that its thread has released already
            # and uses for another ticket. Ending a socket's calls does not wait for anything.
            for _, _, abort in self._claims.values():
                abort()
            begun = {
                index for start, stop, _ in self._claims.values() for index in range(start, stop)
            }
            for index, outcome in enumerate(self._outcomes):
                if outcome is None and index not in begun:
                    self._outcomes[index] = Outcome.CANCELLED
                    self._left -= 1
            callbacks = self._due()
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def settle(self, index: int, outcome: Outcome) -> None:
        """Give a key its outcome; the first one counts. For the instance's threads."""
        with self._changed:
            if self._outcomes[index] is not None:
                return
            self._outcomes[index] = outcome
            self._left -= 1
            callbacks = self._due()
            if not self._left:
                self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def claim(self, start: int, stop: int, abort: Callable[[], None]) -> int | None:
        """A thread is about to touch the buffers of ``start .. stop-1``; for these threads.

        Args:
            start: First key.
            stop: One after the last.
            abort: Ends what the thread is doing; must not wait.

        Returns:
            What ``release`` wants, none when the ticket was given up: then nothing may be touched.
        """
        with self._changed:
            if self._given_up:
                return None
            token = self._next_token
            self._next_token += 1
            self._claims[token] = (start, stop, abort)
            return token

    def release(self, token: int) -> None:
        """The thread does not touch buffers any more. For the instance's threads."""
        with self._changed:
            del self._claims[token]

    def _due(self) -> list[Callable[[Ticket], None]]:
        if self._left:
            return []
        due, self._callbacks = self._callbacks, []
        return due
