"""What fills the queue: what exists at first, then the watches, and everything now and then."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from kvserving_operator.kube import errors
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key
from kvserving_operator.runtime.queue import WorkQueue
from kvserving_operator.runtime.resync import list_keys, resync_forever
from kvserving_operator.runtime.watches import ChildWatches

logger = logging.getLogger(__name__)

_CRD_RETRY = 3.0


class ObjectWatch(Protocol):
    """The watch of the KVServings themselves."""

    async def run(self) -> None:
        """Watch for ever."""


class Feed:
    """Wakes passes while this process leads."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        client: ApiClient,
        *,
        children: ChildWatches,
        objects: ObjectWatch,
        namespaces: Sequence[str],
        interval: float,
    ) -> None:
        """``interval``: seconds between passes of an object without events."""
        self._queue = queue
        self._client = client
        self._children = children
        self._objects = objects
        self._namespaces = namespaces
        self._interval = interval
        self.waiting_for_crd = False

    async def run(self) -> None:
        """Feed for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._children.run(), name="watches of children")
            existing = await self._existing()
            await self._children.begun()
            for key in existing:
                self._queue.add(key)
            resync = resync_forever(
                client=self._client,
                namespaces=self._namespaces,
                interval=self._interval,
                enqueue=self._queue.add_after,
            )
            group.create_task(resync, name="resync")
            group.create_task(self._objects.run(), name="watches")

    async def _existing(self) -> list[Key]:
        """All KVServings, as soon as their CRD is there: kopf watches only what exists then."""
        while True:
            try:
                keys = await list_keys(self._client, self._namespaces)
            except errors.NotFoundError:
                if not self.waiting_for_crd:
                    logger.error("the CRD kvservings.kvserving.io is not installed; waiting for it")
                self.waiting_for_crd = True
            except errors.RequestError as error:
                logger.warning("cannot list KVServing objects yet: %s", error)
            else:
                self.waiting_for_crd = False
                return keys
            await asyncio.sleep(_CRD_RETRY)
