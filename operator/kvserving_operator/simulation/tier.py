"""The remote tier as queues: each instance serves one value after the other. Pure."""

import math
from collections.abc import Sequence

from kvserving_operator.simulation.caches import ShardedCache


class Tier:
    """Instances that several engines share.

    ``bandwidth`` is that of all instances together in bytes a second; an instance has its part of
    it, because one main thread executes its commands (so a queue, not a shared pipe). What engines
    write is not charged: it is written behind, and the published figures were taken with it.
    """

    def __init__(
        self, *, instances: int, bandwidth: float, chunk_bytes: float, capacity: int | None
    ) -> None:
        self.cache = ShardedCache(instances, capacity)
        self._free = [0.0] * instances
        self._seconds = chunk_bytes * instances / bandwidth
        self._chunk_bytes = chunk_bytes

    def owed_bytes(self, now: float) -> float:
        """Bytes asked of the tier and not yet delivered."""
        waiting = sum(max(0.0, free - now) for free in self._free)
        return waiting / self._seconds * self._chunk_bytes

    def fetch(
        self, chunks: Sequence[int], now: float, *, deadline: float, cancel: bool
    ) -> float | None:
        """When the last of these chunk indexes has arrived; None if that is after ``deadline``.

        All ranks have to have theirs before any goes on. With ``cancel`` what is late is given up
        at the deadline, else it is fetched all the same and keeps the instances busy.
        """
        count = len(self._free)
        asked = [0] * count
        for chunk in chunks:
            asked[chunk % count] += 1
        ends = []
        for number, mine in enumerate(asked):
            if mine:
                start = max(now, self._free[number])
                ends.append((number, start, start + mine * self._seconds))
        latest = max((end for _, _, end in ends), default=now)
        late = latest > deadline
        for number, start, end in ends:
            stop = min(end, max(start, deadline)) if late and cancel else end
            self._free[number] = stop if stop > start else self._free[number]
        return None if late else latest


NEVER = math.inf
"""The deadline of a load that is waited for, however long it takes."""
