"""How the router picks a prefill engine. Pure.

The policies are those of vllm-router, without its thresholds' timing: cache-aware sends a prompt
where most of its prefix went before, unless the engines are far out of balance.
"""

import zlib
from collections.abc import Sequence
from random import Random
from typing import Final

from kvserving_operator.simulation.job import Job
from kvserving_operator.simulation.scenario import Policy

_MATCHED: Final = 0.5
"""Share of a prompt that must have been seen for its engine to be preferred."""
_FAR: Final = 32
_TIMES: Final = 1.1
"""Out of balance: the busiest has so many requests more, and so many times more, than others."""
_PLACES: Final = 8
"""Every eighth chunk of a prompt is remembered: where a prefix ends need not be known exactly."""
_REMEMBERED: Final = 1 << 19
"""Places that are remembered at least; twice as many at most, the older ones go first."""


class Router:
    """Knows what it sent where, and what has not been answered there."""

    def __init__(self, policy: Policy, engines: int, chance: Random) -> None:
        self._policy = policy
        self._chance = chance
        self._open = [0] * engines
        self._next = 0
        self._sent: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def pick(self, job: Job) -> int:
        """The engine for a job, which counts as busy with it from now on."""
        chosen = self._choose(job) if len(self._open) > 1 else 0
        self._open[chosen] += 1
        return chosen

    def answered(self, engine: int) -> None:
        """One request less is under way there."""
        self._open[engine] -= 1

    def _choose(self, job: Job) -> int:
        count = len(self._open)
        match self._policy:
            case Policy.RANDOM:
                return self._chance.randrange(count)
            case Policy.POWER_OF_TWO:
                return self._idler(self._chance.sample(range(count), 2))
            case Policy.CONSISTENT_HASH:
                return zlib.crc32(job.request.segments[0].id.encode()) % count
            case Policy.CACHE_AWARE:
                return self._by_cache(job)
            case Policy.STICKY_LEAST_LOADED:
                return self._idler(range(count))
        self._next = (self._next + 1) % count
        return self._next

    def _by_cache(self, job: Job) -> int:
        most, least = max(self._open), min(self._open)
        places = job.keys[::_PLACES]
        known = self._known(places)
        unbalanced = most - least > _FAR and most > _TIMES * least
        if known and known >= _MATCHED * len(places) and not unbalanced:
            chosen = self._where(places[known - 1])
        else:
            chosen = self._idler(range(len(self._open)))
        if len(self._sent) > _REMEMBERED:
            self._before, self._sent = self._sent, {}
        self._sent.update(dict.fromkeys(places, chosen))
        return chosen

    def _where(self, place: int) -> int:
        """The engine that a place was last sent to, -1 if none is remembered."""
        return self._sent.get(place, self._before.get(place, -1))

    def _known(self, places: Sequence[int]) -> int:
        """Places of the prefix that were sent somewhere: all before a known one are known."""
        low, high = 0, len(places)
        while low < high:
            middle = (low + high) // 2
            if self._where(places[middle]) >= 0:
                low = middle + 1
            else:
                high = middle
        return low

    def _idler(self, engines: Sequence[int]) -> int:
        """The one with the fewest requests; of equals the next in turn."""
        count = len(self._open)
        self._next = (self._next + 1) % count
        return min(engines, key=lambda one: (self._open[one], (one - self._next) % count))
