"""Kubernetes Events: one per object and reason, with a count, written after the status.

The name is derived from the object's uid and the reason, so repeating an event raises the count of
the one that exists instead of filling the namespace. Events are for people: when one cannot be
written the pass goes on and only a metric tells.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from kvserving_operator.api import meta
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key
from kvserving_operator.plan.model import Manifest
from kvserving_operator.reconcile import PassResult
from kvserving_operator.runtime import metrics
from kvserving_operator.runtime.log import log_fields
from kvserving_operator.status import Event

logger = logging.getLogger(__name__)

QUIET = 10.0
"""Seconds in which a repeated event only raises the count that the next write carries."""
_REMEMBERED = 2000
_MESSAGE_LIMIT = 1000


@dataclass(slots=True)
class _Seen:
    count: int
    written_at: float


class EventRecorder:
    """Writes the events of finished passes."""

    def __init__(
        self,
        client: ApiClient,
        *,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._identity = identity
        self._now = now
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    async def record(self, key: Key, result: PassResult) -> None:
        """Write the events of a pass; a fence that closed meanwhile still ends the pass."""
        for event in result.events:
            await self._try(key, result.uid, event, quiet=QUIET)

    async def tell(self, key: Key, uid: str, event: Event) -> None:
        """Write one event now, whatever was written a moment ago."""
        await self._try(key, uid, event, quiet=0.0)

    async def _try(self, key: Key, uid: str, event: Event, *, quiet: float) -> None:
        try:
            await self._record(key, uid, event, quiet=quiet)
        except errors.RequestError as error:
            metrics.EVENTS_FAILED.inc()
            logger.warning("event %s not written: %s", event.reason, error, extra=log_fields(key))

    async def _record(self, key: Key, uid: str, event: Event, *, quiet: float) -> None:
        name = event_name(key, uid, event.reason)
        clock = asyncio.get_running_loop().time()
        seen = self._seen.get(name)
        if seen is not None:
            seen.count += 1
            self._seen.move_to_end(name)
            if clock - seen.written_at < quiet:
                return
            count = seen.count
        else:
            live = await self._client.get(paths.EVENTS, key.namespace, name)
            count = int(live.get("count") or 1) + 1 if live else 1
        await self._write(key, uid, event, name, count)
        self._seen[name] = _Seen(count, clock)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def _write(self, key: Key, uid: str, event: Event, name: str, count: int) -> None:
        stamp = self._now().isoformat(timespec="seconds").replace("+00:00", "Z")
        changing = {
            "type": event.type,
            "message": event.message[:_MESSAGE_LIMIT],
            "count": count,
            "lastTimestamp": stamp,
        }
        if count > 1:
            try:
                await self._client.merge(paths.EVENTS, key.namespace, name, changing)
            except errors.NotFoundError:
                # Events live for an hour; this one is over and starts again.
                changing["count"] = 1
            else:
                return
        await self._client.create(self._new(key, uid, event, name, stamp) | changing)

    def _new(self, key: Key, uid: str, event: Event, name: str, stamp: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": key.namespace, "name": name},
            "involvedObject": {
                "apiVersion": meta.API_VERSION,
                "kind": meta.KIND,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
            "reason": event.reason,
            "source": {"component": meta.FIELD_MANAGER},
            "reportingComponent": meta.FIELD_MANAGER,
            "reportingInstance": self._identity,
            "firstTimestamp": stamp,
        }


def event_name(key: Key, uid: str, reason: str) -> str:
    """Name of the one Event of this object and reason."""
    digest = hashlib.sha256(f"{uid}/{reason}".encode()).hexdigest()[:16]
    return f"{key.name}.{digest}"
