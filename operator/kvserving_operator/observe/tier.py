"""Looks at the instances of tiers: beside the passes, a bounded number at once, remembered.

A pass starts the look that is due and waits for a moment only, because a healthy tier answers in
milliseconds and one that hangs must hold up nothing. What it was told last stays until the look
that is under way has ended.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube.errors import RequestError
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.tier_client import TIMEOUT
from kvserving_operator.observe.tier_health import (
    InstanceState,
    TierFault,
    TierHealth,
    health_of,
    judged,
)
from kvserving_operator.observe.tier_probe import Instance, Reading, probe

logger = logging.getLogger(__name__)

PATIENCE: Final = 0.5
"""Seconds for which a pass waits for the look that it has started."""
SOON: Final = 1.0
"""Seconds until a pass comes back for a look that was not finished, and the shortest time between
two looks at one object."""
UNSURE: Final = 10.0
"""Seconds until the first further look at a tier that is not as it should be. Each one after it
waits twice as long, up to the object's interval."""
AT_ONCE: Final = 64
"""Connections to instances, of all objects together."""
_MOST_OBJECTS: Final = 5000
_FORGOTTEN: Final = 900.0
"""Seconds after which an object that nobody asked about is forgotten: it is gone, or its tier."""


class NoInstancesError(Exception):
    """What is needed for a look, such as a Secret, is not there. The text says what, and where."""


Found = Callable[[], Awaitable[Sequence[Instance]]]
"""Where instances are and who logs in to them. It may raise NoInstancesError; its logins are
kept no longer than a look takes."""


@dataclass(slots=True)
class _Watched:
    """One object's tier."""

    key: Key
    asked_at: float
    targets: frozenset[str] = frozenset()
    """The identities that the last look was at."""
    tried: frozenset[str] = frozenset()
    """Those that it was to be at, also where it failed."""
    ready: frozenset[str] = frozenset()
    """Those that were ready when the last look that ended began."""
    tried_ready: frozenset[str] = frozenset()
    """The same of the last look that began."""
    states: dict[str, InstanceState] = field(default_factory=dict)
    health: TierHealth | None = None
    secret: str = ""
    """Where the passwords are, for messages."""
    due: float = 0.0
    earliest: float = 0.0
    unsure: int = 0
    """Looks in a row that did not find everything as it should be."""
    task: asyncio.Task[None] | None = None


class Tiers:
    """Looks at tiers; an async context, because looks may be under way."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [watched.task for watched in self._watched.values() if watched.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def states(self) -> Iterator[tuple[Key, InstanceState]]:
        """What the last look at each instance has found, for metrics."""
        now = self._clock()
        for watched in self._watched.values():
            if watched.asked_at + _FORGOTTEN >= now:
                for state in watched.states.values():
                    yield watched.key, state

    def limits(self, uid: str) -> frozenset[int]:
        """What instances of the object said at their last look that they may hold, in bytes."""
        watched = self._watched.get(uid)
        told = () if watched is None else watched.states.values()
        known = (state.reading.numbers.most_bytes for state in told)
        return frozenset(limit for limit in known if limit is not None)

    async def look(
        self,
        key: Key,
        uid: str,
        targets: frozenset[str],
        interval: float,
        found: Found,
        *,
        ready: frozenset[str] = frozenset(),
    ) -> TierHealth:
        """The health of the tier of the object `uid`.

        `targets`: identities of the instances that there are. One that was not looked at yet asks
        for a look soon; otherwise there is one every `interval` seconds.
        `ready`: those that somebody else has found to answer, such as the kubelet. One that had no
        answer before it was ready is looked at anew, and nothing is told of it until then.
        """
        now = self._clock()
        watched = self._of(key, uid, now)
        changed = self._waits(watched, targets, ready) and now >= watched.earliest
        if watched.task is None and (changed or now >= watched.due):
            watched.earliest = now + SOON
            look = self._look(watched, targets, ready, interval, found)
            watched.task = asyncio.create_task(look, name=f"look at the tier of {key}")
        if watched.task is not None:
            await asyncio.wait({watched.task}, timeout=PATIENCE)
        return self._told(watched, targets, ready)

    def _of(self, key: Key, uid: str, now: float) -> _Watched:
        watched = self._watched.pop(uid, None) or _Watched(key, now)
        watched.asked_at = now
        # The first are those that nobody has asked about for longest.
        for other, old in list(self._watched.items()):
            if old.asked_at + _FORGOTTEN >= now and len(self._watched) < _MOST_OBJECTS:
                break
            if old.task is None:
                del self._watched[other]
        self._watched[uid] = watched
        return watched

    @staticmethod
    def _waits(watched: _Watched, targets: frozenset[str], ready: frozenset[str]) -> bool:
        """Whether there is something that no look has been at as it is now."""
        if not targets <= watched.tried:
            return True
        return not ready.isdisjoint(_failed(watched) - watched.tried_ready)

    def _told(
        self, watched: _Watched, targets: frozenset[str], ready: frozenset[str]
    ) -> TierHealth:
        soon = watched.task is not None or self._waits(watched, targets, ready)
        again = SOON if soon else max(SOON, watched.due - self._clock())
        if watched.health is None:
            return TierHealth(asked=True, look_again=again)
        health = watched.health
        outdated = ready & _failed(watched) - watched.ready
        current = targets - outdated
        if watched.states and not watched.states.keys() <= current:
            # Of those that are gone, or ready, since nothing is told until the next look.
            left = (state for identity, state in watched.states.items() if identity in current)
            health = health_of(left, secret=watched.secret)
        seen = health.seen and not outdated and targets <= watched.targets
        return replace(health, seen=seen, look_again=again)

    async def _look(
        self,
        watched: _Watched,
        targets: frozenset[str],
        ready: frozenset[str],
        interval: float,
        found: Found,
    ) -> None:
        watched.tried, watched.tried_ready, looked = targets, ready, False
        try:
            watched.health = await self._looked(watched, found)
            watched.targets, watched.ready, looked = targets, ready, True
        except RequestError as error:
            logger.warning("%s/%s: no look at the tier: %s", *watched.key, error)
        except Exception:
            # Whatever it is, it is about the tier and must not end the passes of the object.
            logger.exception("%s/%s: the look at the tier failed", *watched.key)
        finally:
            good = looked and self._is_good(watched)
            watched.unsure = 0 if good else min(watched.unsure + 1, 30)
            wait = interval if good else min(interval, UNSURE * 2 ** (watched.unsure - 1))
            watched.due = self._clock() + wait
            watched.task = None

    async def _looked(self, watched: _Watched, found: Found) -> TierHealth:
        try:
            instances = await found()
        except NoInstancesError as error:
            watched.states = {}
            missing = TierFault(reason=Reason.TIER_SECRET_MISSING, message=str(error))
            return TierHealth(asked=True, seen=True, faults=(missing,))
        answers = await asyncio.gather(*(self._probed(instance) for instance in instances))
        watched.states = judged(
            watched.states,
            {instance.identity: instance.place for instance in instances},
            {i.identity: answer for i, answer in zip(instances, answers, strict=True)},
        )
        watched.secret = next((instance.secret for instance in instances), "")
        return health_of(watched.states.values(), secret=watched.secret)

    async def _probed(self, instance: Instance) -> Reading:
        async with self._slots:
            return await probe(instance, timeout=TIMEOUT)

    @staticmethod
    def _is_good(watched: _Watched) -> bool:
        health = watched.health
        if health is None or health.faults:
            return False
        return not any(state.doubtful for state in watched.states.values())


def _failed(watched: _Watched) -> frozenset[str]:
    """Instances whose last look failed."""
    states = watched.states.items()
    return frozenset(i for i, state in states if state.reading.failure is not None)
