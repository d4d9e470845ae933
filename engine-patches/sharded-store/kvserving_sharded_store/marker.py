"""Checks instances that were connected to anew: what they give back is what they were given. Pure.

An instance that was restarted is empty, and may be another server than before. A small value of
this process goes there and back; until it has come back right nothing else is concluded from it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb

_log = logging.getLogger(__name__)
_BYTES: Final = 4096
_SECONDS: Final = 5.0


class Markers:
    """Follows the connections of some instances.

    Args:
        instances: Which.
        wrong: Called when an instance gave back something else; from any thread, must not wait.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        instances: tuple[Instance, ...],
        wrong: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._instances = instances
        self._wrong = wrong
        self._now = now
        self._connects = [0.0] * len(instances)

    def look(self) -> None:
        """Start a check of each instance with new connections; does not wait."""
        for index, instance in enumerate(self._instances):
            connects = instance.stats.counts().get("connects", 0.0)
            if connects > self._connects[index] and not instance.is_open:
                self._connects[index] = connects
                self._check(instance)

    def _check(self, instance: Instance) -> None:
        value = os.urandom(_BYTES)
        key = b"kvs:mark:" + value[:8].hex().encode()
        back = bytearray(_BYTES)
        by = self._now() + _SECONDS

        def read(done: Ticket) -> None:
            if done.outcomes()[0] is Outcome.DONE and bytes(back) != value:
                _log.error("%s gave back another value than it was given", instance.address)
                self._wrong()
            instance.submit(Ticket(Verb.REMOVE, [key], [], by))

        def stored(done: Ticket) -> None:
            if done.outcomes()[0] is not Outcome.DONE:
                return
            ticket = Ticket(Verb.GET, [key], [memoryview(back)], by)
            instance.submit(ticket)
            ticket.when_final(read)

        ticket = Ticket(Verb.SET, [key], [memoryview(bytearray(value))], by)
        instance.submit(ticket)
        ticket.when_final(stored)
