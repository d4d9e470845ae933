"""Workers: take a key, run one pass, decide when the key comes back, tell what happened.

The worker owns the consequences of a pass that the pass itself does not know about: backoff, the
time limit, events after the status write, metrics, the log line, and the heartbeat that the
liveness probe reads.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Key
from kvserving_operator.reconcile import PassResult
from kvserving_operator.runtime import metrics
from kvserving_operator.runtime.log import log_fields
from kvserving_operator.runtime.queue import QueueStoppedError, WorkQueue

logger = logging.getLogger(__name__)

PASS_TIMEOUT = 120.0
"""Seconds after which a pass is abandoned and retried: no request waits that long by itself."""


class EventSink(Protocol):
    """Where the events of a pass go; implemented by runtime.events.EventRecorder."""

    async def record(self, key: Key, result: PassResult) -> None:
        """Write the events of a finished pass."""


@dataclass(slots=True)
class Heartbeat:
    """When each busy worker began its pass, on the loop's clock."""

    limit: float = PASS_TIMEOUT + 30.0
    busy: dict[str, float] = field(default_factory=dict)

    def stuck(self, now: float) -> list[str]:
        """Names of the workers whose pass outlived the limit: not even its timeout ended it."""
        return [name for name, since in self.busy.items() if now - since > self.limit]


class Workers:
    """A fixed number of workers on one queue."""

    def __init__(
        self,
        *,
        queue: WorkQueue[Key],
        reconcile: Callable[[Key], Awaitable[PassResult]],
        events: EventSink,
        count: int,
        pass_timeout: float = PASS_TIMEOUT,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._events = events
        self._count = count
        self._pass_timeout = pass_timeout
        self._phases = metrics.Phases()
        self.heartbeat = Heartbeat(limit=pass_timeout + 30.0)

    async def run(self) -> None:
        """Work until the queue is stopped; an error outside a pass ends all workers."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._work(f"worker-{number}"), name=f"worker-{number}")

    async def _work(self, name: str) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueStoppedError:
                return
            self.heartbeat.busy[name] = asyncio.get_running_loop().time()
            try:
                await self._pass(key)
            finally:
                self._queue.done(key)
                del self.heartbeat.busy[name]

    async def _pass(self, key: Key) -> None:
        metrics.QUEUE_LATENCY.observe(self._queue.latency(key))
        started = time.perf_counter()
        outcome = "error"
        try:
            async with asyncio.timeout(self._pass_timeout):
                result = await self._reconcile(key)
                await self._events.record(key, result)
            outcome = "success" if result.ok else "failed"
            self._account(key, result)
            self._reschedule(key, result)
        except errors.FencedError:
            # Leadership is gone and the process about to end, unless a late renewal saves it: then
            # nothing but this would bring the key back before the resync.
            outcome = "fenced"
            self._queue.add_backoff(key)
            logger.warning("pass stopped: leadership is uncertain", extra=log_fields(key))
        except Exception as error:  # noqa: BLE001 a bug in one object must not stop the others
            delay = self._queue.add_backoff(key)
            self._log_failure(key, error, delay)
        finally:
            metrics.PASSES.labels(outcome=outcome).inc()
            metrics.PASS_SECONDS.observe(time.perf_counter() - started)

    def _account(self, key: Key, result: PassResult) -> None:
        if result.status_written:
            metrics.STATUS_WRITES.inc()
        if result.look is not None:
            metrics.observe_look(result.look)
        for part in result.failed:
            metrics.PARTS_FAILED.labels(part=part.value).inc()
        if result.gone or result.phase:
            self._phases.set(key, None if result.gone else result.phase)

    def _reschedule(self, key: Key, result: PassResult) -> None:
        if result.gone:
            self._queue.forget(key)
        elif result.ok:
            self._queue.succeeded(key)
            if result.requeue_after is not None:
                self._queue.add_after(key, result.requeue_after)
        else:
            delay = self._queue.add_backoff(key)
            logger.warning(
                "pass incomplete: %s; again in %.1f s",
                "; ".join(result.retry),
                delay,
                extra=log_fields(key, generation=result.generation),
            )

    def _log_failure(self, key: Key, error: Exception, delay: float) -> None:
        expected = isinstance(error, errors.RequestError | TimeoutError)
        logger.log(
            logging.WARNING if expected else logging.ERROR,
            "pass failed: %s; again in %.1f s",
            error or type(error).__name__,
            delay,
            extra=log_fields(key),
            exc_info=None if expected else error,
        )
