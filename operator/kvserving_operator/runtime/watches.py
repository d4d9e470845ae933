"""The watches of children and pods: they fill the cache and say whose pass is due.

For each kind: LIST, watch from there, and when the watch is over, for whatever reason, LIST again.
A LIST compares with what was held, so nothing that happened in between is missed, and only those
are woken whom it concerns. A watch that lives ends after the resync interval by itself: what it may
have lost without a word is healed like that. While a kind is not watched, passes list it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.kube import errors
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.cache import ChildCache, Shelf
from kvserving_operator.plan.model import Manifest
from kvserving_operator.runtime import metrics

logger = logging.getLogger(__name__)

_SHORTEST: Final = 0.1
_LONGEST: Final = 15.0
_HEALTHY: Final = 10.0
"""Seconds after which a watch that ends is no sign of trouble."""
_GRACE: Final = 5.0
"""Seconds after which a watch that the server should have ended is taken for dead."""
_PATIENCE: Final = 5.0
"""Seconds in which the first LISTs should be there; passes begin without them after that."""


class ChildWatches:
    """All watches but that of the KVServings."""

    def __init__(
        self,
        client: ApiClient,
        cache: ChildCache,
        *,
        wake: Callable[[Key], None],
        interval: float,
    ) -> None:
        """``interval``: seconds after which a watch makes room for a new LIST, jittered."""
        self._wake = wake
        self._passes_begun = False
        self._watches = [
            _Watch(client, shelf, wake=self._news, interval=interval) for shelf in cache.shelves
        ]

    async def run(self) -> None:
        """Watch for ever."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.run(), name=f"watch {watch.what}")

    async def begun(self) -> None:
        """Return when each kind has been listed or has failed to be, or after a while.

        Nobody is woken until then: a pass amid the first LISTs would list once more itself. The
        caller wakes everybody after it.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(watch.tried.wait() for watch in self._watches))
        except TimeoutError:
            logger.warning("not all children are listed yet; passes begin all the same")
        self._passes_begun = True

    def _news(self, key: Key) -> None:
        if self._passes_begun:
            self._wake(key)


class _Watch:
    def __init__(
        self, client: ApiClient, shelf: Shelf, *, wake: Callable[[Key], None], interval: float
    ) -> None:
        self._client = client
        self._shelf = shelf
        self._wake = wake
        self._interval = interval
        self._delay = _SHORTEST
        self.what = str(shelf.resource)
        self.tried = asyncio.Event()

    async def run(self) -> None:
        """LIST and watch, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                await self._follow(await self._list())
            except Exception as error:  # noqa: BLE001 one odd object must not end all watches
                self._tell(error)
            finally:
                self._shelf.lost()
                self.tried.set()
            if loop.time() - begun >= min(_HEALTHY, self._interval):
                self._delay = _SHORTEST
            await asyncio.sleep(self._delay * random.uniform(0.75, 1.25))  # noqa: S311
            self._delay = min(2 * self._delay, _LONGEST)

    async def _list(self) -> str:
        """Hold all there is; returns the version to watch from."""
        mark = self._shelf.mark
        snapshot = await self._client.snapshot(
            self._shelf.resource, self._shelf.namespace, selector=meta.LABEL_KVSERVING
        )
        for key in self._shelf.replace(snapshot.items, snapshot.version, mark):
            self._wake(key)
        self.tried.set()
        return snapshot.version

    async def _follow(self, version: str) -> None:
        """Take in events until the watch is over."""
        seconds = self._interval * random.uniform(0.9, 1.1)  # noqa: S311
        opening = self._client.watch(
            self._shelf.resource,
            self._shelf.namespace,
            selector=meta.LABEL_KVSERVING,
            since=version,
            seconds=seconds,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + _GRACE), opening as events, aclosing(events):
                async for event in events:
                    self._take(event["type"], event["object"])

    def _take(self, kind: str, manifest: Manifest) -> None:
        keys = self._shelf.take(kind, manifest)
        effect = "pass" if keys else "noise"
        metrics.WATCH_EVENTS.labels(resource=self._shelf.resource.plural, effect=effect).inc()
        for key in keys:
            self._wake(key)

    def _tell(self, error: Exception) -> None:
        # 410 is the ordinary way to say that too much has happened since; the LIST comes anyway.
        expired = isinstance(error, errors.ApiError) and error.status == 410
        level = logging.INFO if expired else logging.WARNING
        expected = isinstance(error, errors.RequestError | ValueError)
        logger.log(
            level,
            "watch of %s: %s; listing again",
            self.what,
            error if expected else repr(error),
            exc_info=None if expected else error,
        )
