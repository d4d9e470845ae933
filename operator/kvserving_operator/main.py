"""The operator process: the one place where its parts are put together.

    HTTP server ─ leader election ─ (leading:) workers + resync + watches ─ end

A process leads at most once. SIGTERM: passes in hand finish within a bound, the Lease is given
back, then the watches stop. Anything else that ends a part (leadership lost, kopf gone, a worker
dead) ends the process with status 1: crash-only, the next start reads everything anew.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from kvserving_operator import __version__, settings
from kvserving_operator.handlers import EventSource
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials, CredentialsError
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.cache import ChildCache
from kvserving_operator.observe.gather import Watched
from kvserving_operator.observe.prometheus import Prometheus
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.plan import Defaults
from kvserving_operator.reconcile import Reconciler
from kvserving_operator.runtime import log, metrics, tier_metrics
from kvserving_operator.runtime.events import EventRecorder
from kvserving_operator.runtime.feed import Feed
from kvserving_operator.runtime.http import HttpServer
from kvserving_operator.runtime.leader import LeaderElector, LeaseTiming
from kvserving_operator.runtime.queue import WorkQueue
from kvserving_operator.runtime.watches import ChildWatches
from kvserving_operator.runtime.worker import Workers
from kvserving_operator.settings import Settings

logger = logging.getLogger("kvserving_operator")

_NESTING = 25_000
"""Python's limit of nested calls. The API server stores JSON of up to 10,000 levels, and Python
reads it by recursion: with the usual 1,000, one such object would end every LIST and watch."""
_SILENCE = 15.0
"""Seconds without an answer about the Lease after which the process calls itself not ready."""


def run() -> None:
    """Entry point of the `kvserving-operator` program."""
    configured = settings.parse()
    sys.setrecursionlimit(_NESTING)
    log.configure(configured.log_level)
    operator = Operator(configured)
    try:
        status = asyncio.run(operator.run())
    except CredentialsError as error:
        logger.error("%s", error)
        status = 1
    logging.shutdown()
    if operator.watching:
        # A kopf that does not stop is left behind; interpreter shutdown would trip over it.
        os._exit(status)
    sys.exit(status)


class Operator:
    """One run of the operator."""

    def __init__(self, configured: Settings) -> None:
        self._settings = configured
        self._stop = asyncio.Event()
        self._elector: LeaderElector | None = None
        self._workers: Workers | None = None
        self._source: EventSource | None = None
        self._asked: dict[str, Any] = {}
        self._feed: Feed | None = None

    @property
    def watching(self) -> bool:
        """True while the watch thread runs."""
        return self._source is not None and self._source.alive

    async def run(self) -> int:
        """Run until stopped or broken; returns the exit status of the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        credentials = await Credentials.load(self._settings.kubeconfig)
        http = HttpServer(
            host=self._settings.http_host,
            port=self._settings.http_port,
            alive=self._alive,
            ready=self._ready,
        )
        port = await http.start()
        logger.info("kvserving-operator %s as %s, port %d", __version__, self._identity, port)
        try:
            async with self._lease_client(credentials) as client:
                self._elector = self._make_elector(client)
                return await self._stand(self._elector, credentials)
        finally:
            await http.stop()

    # Phases

    async def _stand(self, elector: LeaderElector, credentials: Credentials) -> int:
        """Stand by until this process leads or is stopped."""
        acquired = asyncio.create_task(elector.acquire(), name="acquire")
        await self._first(acquired)
        if self._stop.is_set():
            await _cancelled(acquired)
            await elector.release()
            return 0
        await acquired
        metrics.LEADER.set(1)
        holding = asyncio.create_task(elector.hold(), name="hold")
        try:
            client = ApiClient(
                credentials,
                fence=elector.fence,
                observe=metrics.observe_call,
                concurrency=self._settings.api_concurrency,
                write_timeout=self._settings.write_timeout,
            )
            async with client, Agents() as agents, Prometheus() as prometheus, Tiers() as tiers:
                self._asked = {"agents": agents, "prometheus": prometheus, "tiers": tiers}
                tier_metrics.show(tiers)
                return await self._lead(elector, holding, client, credentials)
        finally:
            metrics.LEADER.set(0)
            await _cancelled(holding)

    async def _lead(
        self,
        elector: LeaderElector,
        holding: "asyncio.Task[None]",
        client: ApiClient,
        credentials: Credentials,
    ) -> int:
        """Reconcile until something ends; then wind down in an order that helps the next leader."""
        queue: WorkQueue[Key] = WorkQueue()
        _measure(queue)
        cache = ChildCache(paths.WATCHED, self._settings.namespaces)
        client.tell(cache)
        self._workers = self._make_workers(queue, client, cache)
        working = asyncio.create_task(self._workers.run(), name="workers")
        self._feed = self._make_feed(queue, client, cache, credentials)
        feeding = asyncio.create_task(self._feed.run(), name="feed")
        await self._first(holding, working, feeding)
        failures = list(_failures(holding, working, feeding))
        logger.info("stopping: %s", "asked to" if not failures else "a part ended")
        for line in failures:
            logger.error("%s", line)
        await _cancelled(feeding)
        queue.stop()
        await self._finish(working)
        await _cancelled(holding)
        if elector.leading:
            await elector.release()
        if self._source is not None:
            await self._source.stop()
        return 1 if failures else 0

    def _make_feed(
        self,
        queue: "WorkQueue[Key]",
        client: ApiClient,
        cache: ChildCache,
        credentials: Credentials,
    ) -> Feed:
        namespaces, interval = self._settings.namespaces, self._settings.resync_interval
        self._source = EventSource(
            credentials=credentials, namespaces=namespaces, enqueue=queue.add
        )
        children = ChildWatches(client, cache, wake=queue.add, interval=interval)
        return Feed(
            queue,
            client,
            children=children,
            objects=self._source,
            namespaces=namespaces,
            interval=interval,
        )

    async def _finish(self, working: "asyncio.Task[None]") -> None:
        """Let passes in hand end, within the bound: every write is idempotent, none is owed."""
        _, pending = await asyncio.wait({working}, timeout=self._settings.stop_timeout)
        if pending:
            logger.warning("passes in hand were cut off after %.1f s", self._settings.stop_timeout)
        await _cancelled(working)

    async def _first(self, *tasks: "asyncio.Task[None]") -> None:
        """Wait until one of the tasks or the stop signal comes."""
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(stopping)

    # Parts

    @property
    def _identity(self) -> str:
        return self._settings.identity

    def _lease_client(self, credentials: Credentials) -> ApiClient:
        # Its own connections and slots: renewals never queue behind reconciles, and are what the
        # fence rests on, so they are not fenced.
        return ApiClient(
            credentials,
            observe=metrics.observe_call,
            concurrency=2,
            attempts=1,
            write_timeout=self._settings.write_timeout,
        )

    def _make_elector(self, client: ApiClient) -> LeaderElector:
        configured = self._settings
        return LeaderElector(
            client,
            namespace=configured.operator_namespace,
            name=configured.lease_name,
            identity=configured.identity,
            predecessor=configured.predecessor,
            timing=LeaseTiming(
                duration=configured.lease_duration,
                renew_deadline=configured.renew_deadline,
                renew_interval=configured.renew_interval,
                standby_interval=configured.standby_interval,
                write_timeout=configured.write_timeout,
            ),
        )

    def _make_workers(
        self, queue: "WorkQueue[Key]", client: ApiClient, cache: ChildCache
    ) -> Workers:
        configured = self._settings
        defaults = Defaults(
            agent_image=configured.agent_image,
            router_image=configured.router_image,
            operator_namespace=configured.operator_namespace,
            operator_labels=configured.operator_labels,
        )
        events = EventRecorder(client, identity=configured.identity)
        return Workers(
            queue=queue,
            reconcile=Reconciler(
                client, Watched(client, cache), defaults, tell=events.tell, **self._asked
            ),
            events=events,
            count=configured.workers,
        )

    # Health

    def _alive(self) -> Sequence[str]:
        if self._workers is None:
            return []
        now = asyncio.get_running_loop().time()
        return [f"{name} is stuck" for name in self._workers.heartbeat.stuck(now)]

    def _ready(self) -> Iterator[str]:
        if self._elector is None or not self._elector.answered_within(_SILENCE):
            yield "the API server has not answered about the Lease"
        if self._feed is not None and self._feed.waiting_for_crd:
            yield "the CRD kvservings.kvserving.io is not installed"


def _measure(queue: "WorkQueue[Key]") -> None:
    metrics.QUEUE_DEPTH.set_function(lambda: len(queue))
    metrics.QUEUE_DUE.set_function(lambda: queue.due)
    metrics.QUEUE_ADDS.set_function(lambda: queue.adds)
    metrics.QUEUE_RETRIES.set_function(lambda: queue.retries)


def _failures(*tasks: "asyncio.Task[None]") -> Iterator[str]:
    for task in tasks:
        if task.done() and not task.cancelled():
            error = task.exception()
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            yield f"{task.get_name()} ended: {error or 'without an error'}"


async def _cancelled(task: "asyncio.Task[None] | asyncio.Task[bool]") -> None:
    """Cancel a task and wait for its end; its own failure has been or will be reported."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


if __name__ == "__main__":
    run()
