"""Events of KVServings become queue keys: the only module that uses kopf, and it uses little of it.

kopf lists, watches, re-lists and re-authenticates; its `on.event` handler writes nothing to any
object. It looks at no difference and awaits nothing: it finds the key of the KVServing and hands it
over, unless the event changes nothing that a pass would read. Children and pods have watches of
their own, `runtime/watches.py`: kopf spends two milliseconds on each event, and does not tell what
went while it was not watching.

kopf runs in a thread with its own event loop. When it ends it cancels every task of its loop that
was created after it started, whoever created it; beside our workers that would cut passes in half.
When kopf ends without having been asked to (it does so by design on several API conditions) the
process ends too: crash-only, the next start lists everything anew.
"""

import asyncio
import base64
import logging
import random
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kopf

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.fingerprint import fingerprint
from kvserving_operator.plan.model import Manifest
from kvserving_operator.runtime import metrics

logger = logging.getLogger(__name__)

_STOP_SECONDS = 2.0


class WatchesEndedError(Exception):
    """kopf ended; the process must end as well."""


class EndlessBackoff:
    """Delays of kopf's request retries: 0.5 s doubling to 30 s, jittered, for ever.

    kopf gives up, and ends, when the delays are used up; an API server may be away for longer.
    """

    def __iter__(self) -> Iterator[float]:
        """A fresh series for every request."""
        delay = 0.5
        while True:
            yield delay * random.uniform(0.75, 1.25)  # noqa: S311
            delay = min(delay * 2, 30.0)


class WatchFilter:
    """Turns events of KVServings into keys and drops those that change nothing we read."""

    def __init__(self) -> None:
        self._known: dict[str, Hashable] = {}

    def key_of(self, event_type: str | None, manifest: Manifest) -> Key | None:
        """The key to enqueue, or None for noise."""
        metadata = manifest["metadata"]
        key, uid = Key(metadata["namespace"], metadata["name"]), str(metadata.get("uid", ""))
        if event_type == "DELETED":
            self._known.pop(uid, None)
            return key
        state = fingerprint(paths.KVSERVINGS, manifest)
        # A re-listed object (no type) is news even when it is unchanged: something was missed.
        if event_type is not None and self._known.get(uid) == state:
            return None
        self._known[uid] = state
        return key


class EventSource:
    """Watches the KVServings and calls `enqueue` on the caller's event loop."""

    def __init__(
        self,
        *,
        credentials: Credentials,
        namespaces: Sequence[str],
        enqueue: Callable[[Key], None],
    ) -> None:
        self._credentials = credentials
        self._namespaces = namespaces
        self._enqueue = enqueue
        self._filter = WatchFilter()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ended: asyncio.Future[BaseException | None] | None = None

    async def run(self) -> None:
        """Watch for ever: returns never, raises WatchesEndedError when kopf ends.

        Cancelling this does not stop kopf, `stop` does: the order of the end is the caller's.
        """
        owner_loop = asyncio.get_running_loop()
        self._ended = owner_loop.create_future()
        # A daemon thread: a kopf that does not stop must not keep the process alive.
        self._thread = threading.Thread(
            target=self._run, args=(owner_loop, self._ended), name="kopf", daemon=True
        )
        self._thread.start()
        cause = await asyncio.shield(self._ended)
        raise WatchesEndedError(str(cause or "kopf returned"))

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    async def stop(self) -> None:
        """Stop watching; gives up waiting after two seconds."""
        if self._loop is None or self._stop is None or self._ended is None:
            return
        if not self._ended.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wait([self._ended], timeout=_STOP_SECONDS)

    def _run(
        self, owner_loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[BaseException | None]"
    ) -> None:
        cause: BaseException | None = None
        try:
            asyncio.run(self._operate(owner_loop))
        except BaseException as error:  # noqa: BLE001 whatever it was, the process must know
            cause = error

        def finish() -> None:
            if not ended.done():
                ended.set_result(cause)

        if not owner_loop.is_closed():
            owner_loop.call_soon_threadsafe(finish)

    async def _operate(self, owner_loop: asyncio.AbstractEventLoop) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        namespaces = list(self._namespaces)
        await kopf.operator(
            registry=self._registry(owner_loop),
            settings=_kopf_settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=self._stop,
        )

    def _registry(self, owner_loop: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        credentials = self._credentials

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            # At the start, and after a 401: what was read before may have been replaced since.
            await credentials.reload()
            return await _connection(credentials)

        kind = paths.KVSERVINGS

        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
        async def wake(event: kopf.RawEvent, **_: Any) -> None:
            key = self._filter.key_of(event["type"], dict(event["object"]))
            effect = "noise" if key is None else "pass"
            metrics.WATCH_EVENTS.labels(resource=kind.plural, effect=effect).inc()
            if key is not None:
                owner_loop.call_soon_threadsafe(self._enqueue, key)

        return registry


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None
    settings.watching.chunk_size = 500
    settings.watching.connect_timeout = 5.0
    settings.watching.server_timeout = 290
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = EndlessBackoff()
    settings.networking.trust_env = False  # kube.credentials has settled the proxy
    settings.execution.max_workers = 4
    settings.persistence.finalizer = f"{meta.GROUP}/finalizer"
    return settings


def _content(path: str | None) -> bytes | None:
    return None if path is None else base64.b64encode(Path(path).read_bytes())


async def _connection(credentials: Credentials) -> kopf.ConnectionInfo:
    """What kopf must know to speak to the API server: the same as our own client."""
    configuration = credentials.configuration
    scheme, _, token = (await credentials.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token or None,
        # Not the paths: kopf takes nothing that looks as it did when it was refused.
        certificate_data=_content(configuration.cert_file),
        private_key_data=_content(configuration.key_file),
        proxy_url=configuration.proxy,
        trust_env=False,
    )
