"""The remote instances of one rank together: which of them holds a key, now or formerly."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.ownership import places
from kvserving_sharded_store.resp.instance import Instance
from kvserving_sharded_store.resp.ticket import Outcome, Ticket, Verb
from kvserving_sharded_store.resp.work import Options


class Ask:
    """A batch over several instances; a key that is absent is asked for at its former places too.

    Like a ticket: buffers may be written until ``when_final`` calls.
    """

    def __init__(
        self,
        tier: Tier,
        verb: Verb,
        keys: Sequence[bytes],
        buffers: Sequence[memoryview],
        deadline: float,
    ) -> None:
        self.deadline = deadline
        self._tier = tier
        self._verb = verb
        self._keys = keys
        self._buffers = buffers
        self._places = [tier.places(key, verb) for key in keys]
        self._changed = threading.Condition()
        self._outcomes = [Outcome.CANCELLED] * len(keys)
        self._tickets: set[Ticket] = set()
        self._given_up = False
        self._ending = False
        self._final = False
        self._callbacks: list[Callable[[Ask], None]] = []
        self._send(list(range(len(keys))), 0)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Outcomes so far; what is not final yet counts as cancelled."""
        with self._changed:
            return tuple(self._outcomes)

    def wait(self) -> tuple[Outcome, ...]:
        """Outcomes when all are final, or at the deadline, when the rest is given up."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._final or self._given_up,
                timeout=max(0.0, self.deadline - time.monotonic()),
            )
            final = self._final
        if not final:
            self.cancel()
        return self.outcomes()

    def when_final(self, callback: Callable[[Ask], None]) -> None:
        """Call when nothing is under way any more; must neither wait nor raise."""
        with self._changed:
            if not self._final:
                self._callbacks.append(callback)
                return
        callback(self)

    def cancel(self) -> None:
        """Give up; see ``Ticket.cancel``."""
        with self._changed:
            self._given_up = True
            tickets = list(self._tickets)
            self._changed.notify_all()
        for ticket in tickets:
            ticket.cancel()

    def _send(self, indexes: list[int], depth: int) -> None:
        by_slot: dict[int, list[int]] = defaultdict(list)
        for index in indexes:
            by_slot[self._places[index][depth]].append(index)
        tickets = {
            slot: Ticket(
                self._verb,
                [self._keys[index] for index in chosen],
                [self._buffers[index] for index in chosen] if self._buffers else [],
                self.deadline,
            )
            for slot, chosen in by_slot.items()
        }
        # All are known before the first can come back, so that it cannot look like the last.
        with self._changed:
            self._tickets.update(tickets.values())
            given_up = self._given_up
        if given_up:
            # In between: whoever gave up did not know of these.
            for ticket in tickets.values():
                ticket.cancel()
        for slot, ticket in tickets.items():
            chosen = by_slot[slot]
            self._tier.instances[slot].submit(ticket)
            ticket.when_final(
                lambda done, chosen=chosen: self._came_back(done, chosen, depth)  # type: ignore[misc]
            )
        if not tickets:
            self._end_if_done()

    def _came_back(self, ticket: Ticket, indexes: list[int], depth: int) -> None:
        again = []
        with self._changed:
            for index, outcome in zip(indexes, ticket.outcomes(), strict=True):
                self._outcomes[index] = outcome
                more = depth + 1 < len(self._places[index])
                if outcome is Outcome.ABSENT and more and not self._given_up:
                    again.append(index)
        if again:
            self._send(again, depth + 1)
        with self._changed:
            self._tickets.discard(ticket)
        self._end_if_done()

    def _end_if_done(self) -> None:
        with self._changed:
            if self._tickets or self._ending:
                return
            self._ending = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        # Waiters come last: what the callbacks do with the values is done when wait returns.
        with self._changed:
            self._final = True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)


class Tier:
    """A rank's instances, by slot."""

    def __init__(self, addresses: Sequence[Address], options: Options) -> None:
        self.instances = tuple(Instance(address, options) for address in addresses)
        self._lock = threading.Lock()
        self._reading = 0
        self._reading_since = 0.0
        self._read_seconds = 0.0

    def places(self, key: bytes, verb: Verb) -> tuple[int, ...]:
        """Slots to ask for a key, in order; a store goes to the first only."""
        found = places(key, len(self.instances))
        return found[:1] if verb is Verb.SET else found

    def ask(
        self,
        verb: Verb,
        keys: Sequence[bytes],
        buffers: Sequence[memoryview],
        seconds: float,
    ) -> Ask:
        """Ask for a batch; does not wait."""
        if verb is Verb.GET:
            self._reads(1)
        ask = Ask(self, verb, keys, buffers, time.monotonic() + seconds)
        if verb is Verb.GET:
            ask.when_final(lambda _done: self._reads(-1))
        return ask

    def _reads(self, more: int) -> None:
        """Keep the seconds in which at least one GET was under way."""
        now = time.monotonic()
        with self._lock:
            if self._reading:
                self._read_seconds += now - self._reading_since
            self._reading += more
            self._reading_since = now

    def counts(self) -> dict[str, float]:
        """Counters of all instances added up; ``fetch_busy_seconds`` is this rank's wall time."""
        total: dict[str, float] = {"fetch_busy_seconds": self._read_seconds}
        for instance in self.instances:
            for name, value in instance.stats.counts().items():
                total[name] = total.get(name, 0) + value
        total["owed_bytes"] = float(self.owed)
        return total

    @property
    def owed(self) -> int:
        """Bytes asked for and not here yet."""
        return sum(instance.owed for instance in self.instances)

    @property
    def open_breakers(self) -> int:
        """Instances given up at present."""
        return sum(instance.is_open for instance in self.instances)

    def close(self, seconds: float = 2.0) -> bool:
        """Cancel everything; whether all threads ended within so many seconds, all together."""
        for instance in self.instances:
            instance.stop()
        until = time.monotonic() + seconds
        ended = [instance.ended(until) for instance in self.instances]
        return all(ended)
