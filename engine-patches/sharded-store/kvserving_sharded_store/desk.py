"""A rank's side of lookups: answers the scheduler, and reports how the rank is. Needs LMCache.

Stands where LMCache's lookup server does. Its thread never waits for the tier: what takes time is
answered from the tier's own threads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any, Final

import zmq
from lmcache.v1.rpc_utils import get_zmq_rpc_path_lmcache

from kvserving_sharded_store import messages
from kvserving_sharded_store.export import Exporter
from kvserving_sharded_store.lookup import cumulative_lengths
from kvserving_sharded_store.place import Chunk

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.25
_REPORT_SECONDS: Final = 1.0
_START_SECONDS: Final = 0.05
"""The first report comes at once: until every rank has made one, the engine is said to start."""


class Desk:
    """Serves one rank until closed.

    Args:
        engine: The rank's engine.
        metadata: LMCache's description of it.
    """

    def __init__(self, engine: Any, metadata: Any) -> None:
        self._engine = engine
        self._rank = int(metadata.worker_id)
        self._prompts: dict[str, list[Chunk]] = {}
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._up = self._socket(zmq.PUSH, metadata, "lookup_scheduler", 0)
        self._down = self._socket(zmq.PULL, metadata, "lookup_worker", self._rank)
        self._exporter = Exporter(rank=str(self._rank))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="kvs-desk", daemon=True)
        self._thread.start()

    def _socket(self, kind: int, metadata: Any, service: Any, number: int) -> Any:
        port = (metadata.kv_connector_extra_config or {}).get("lmcache_rpc_port", 0)
        path = get_zmq_rpc_path_lmcache(metadata.engine_id, service, port, number)
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        if kind == zmq.PULL:
            made.bind(f"ipc://{path}")
        else:
            made.connect(f"ipc://{path}")
        return made

    def _serve(self) -> None:
        due = 0.0
        while not self._closing.is_set():
            try:
                wait = _POLL_SECONDS
                if not self._engine.opened:
                    wait = _START_SECONDS
                elif time.monotonic() >= due:
                    self._report()
                    due = time.monotonic() + _REPORT_SECONDS
                if self._down.poll(wait * 1000):
                    self._handle(messages.unpack(self._down.recv()))
            except zmq.ZMQError:
                if not self._closing.is_set():
                    _log.exception("rank %d answers no lookups any more", self._rank)
                return
            except Exception:  # noqa: BLE001 (the thread must go on)
                _log.exception("a lookup failed")

    def _handle(self, message: messages.Message) -> None:
        match message:
            case messages.Probe():
                self._probe(message)
            case messages.Fetch():
                self._fetch(message)
            case messages.Drop(name=name):
                self._prompts.pop(name, None)
                self._engine.parts.forget(name)
            case messages.Sample(chunks=chunks, seconds=seconds):
                self._engine.parts.sample(chunks, seconds)

    def _open(self) -> bool:
        return bool(
            self._engine.opened and self._engine.is_healthy() and self._engine.parts.closed is None
        )

    def _probe(self, asked: messages.Probe) -> None:
        if not self._open():
            self._answer(asked.name, asked.serial, 0, here=False)
            return
        chunks = self._engine.chunks_of(asked.hashes, asked.tags)
        self._prompts[asked.name] = chunks
        size = self._engine.config.chunk_size
        store = self._engine.parts
        store.probe(
            asked.name,
            chunks,
            cumulative_lengths(store.place.shard, len(chunks) * size, size),
            asked.seconds,
            lambda tokens: self._answer(asked.name, asked.serial, tokens, here=False),
        )

    def _fetch(self, asked: messages.Fetch) -> None:
        size = self._engine.config.chunk_size
        chunks = self._prompts.pop(asked.name, [])[: asked.tokens // size]
        if not self._open():
            self._answer(asked.name, asked.serial, 0, here=True)
            return
        store = self._engine.parts
        store.bring(
            asked.name,
            chunks,
            cumulative_lengths(store.place.shard, len(chunks) * size, size),
            asked.seconds,
            lambda tokens, read: self._answer(
                asked.name, asked.serial, tokens, here=True, read=read
            ),
        )

    def _answer(self, name: str, serial: int, tokens: int, *, here: bool, read: int = 0) -> None:
        self._send(messages.Answer(self._rank, name, serial, tokens, here, read))

    def _report(self) -> None:
        parts = self._engine.parts
        closed = parts.closed
        if closed is None and not self._engine.is_healthy():
            closed = "Unhealthy"
        counts = dict(parts.counts())
        instances, broken = 0, 0
        if parts.tier is not None:
            instances, broken = len(parts.tier.instances), parts.tier.open_breakers
        self._exporter.update(counts, parts.tier)
        self._engine.follow()
        self._send(messages.Report(self._rank, closed, instances, broken, counts))

    def _send(self, message: messages.Message) -> None:
        # From this thread and the tier's; a socket is one thread's at a time. A scheduler that does
        # not listen must not stop the tier: then the answer is lost, and the lookup times out.
        with self._lock, contextlib.suppress(zmq.ZMQError):
            self._up.send(messages.pack(message), zmq.NOBLOCK)

    def close(self) -> None:
        """Stop serving; returns within two seconds."""
        self._closing.set()
        self._thread.join(timeout=1.5)
        with self._lock:
            self._up.close(0)
            self._down.close(0)
        self._context.destroy(0)
