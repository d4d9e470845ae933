"""The decode's side: read the blocks of a prompt from a prefill engine into this engine's cache."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer import wire
from kvserving_engine_sim.transfer.outcome import Received
from kvserving_engine_sim.transfer.params import RemotePrefill

_log = logging.getLogger(__name__)

# A prefill that does not answer costs a request this long, then its policy decides.
_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 10.0


class TransferError(Exception):
    """The KV could not be read; the text says why."""


@dataclass(frozen=True)
class Transfer:
    """One read: the last `len(local)` of the remote blocks into the local ones."""

    request_id: str
    remote: RemotePrefill
    local: tuple[int, ...]
    digest: str


class Reader:
    """Reads in the background on `threads` threads and reports each end to `report`."""

    def __init__(
        self,
        settings: Settings,
        caches: list[PagedKV],
        report: Callable[[Received], None],
        threads: int = 4,
    ) -> None:
        self._caches = caches
        self._layout = settings.layout
        self._report = report
        self._compatibility = wire.compatibility(settings)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="nixl-simulation")

    def start(self, transfer: Transfer) -> None:
        """Read; the end is reported, always."""
        self._threads.submit(self._run, transfer)

    def release(self, remote: RemotePrefill) -> None:
        """Tell a prefill that its blocks are not wanted, so that they need not wait for expiry."""
        self._threads.submit(self._send, remote, {"op": "done", "request_id": remote.request_id})

    def renew(self, remotes: list[RemotePrefill]) -> None:
        """Prolong the leases of requests that still wait for room here."""
        for remote in remotes:
            message: dict[str, Any] = {"op": "renew", "request_ids": [remote.request_id]}
            self._threads.submit(self._send, remote, message)

    def close(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self, transfer: Transfer) -> None:
        started = time.monotonic()
        try:
            received = self._read(transfer, started)
        except (OSError, TransferError) as error:
            text = f"reading KV of {transfer.remote.request_id} failed: {error}"
            received = Received(transfer.request_id, error=text)
        self._report(received)

    def _read(self, transfer: Transfer, started: float) -> Received:
        remote = transfer.remote
        if len(remote.blocks) < len(transfer.local):
            raise TransferError(f"{len(remote.blocks)} blocks hold less than the prompt")
        wanted = remote.blocks[len(remote.blocks) - len(transfer.local) :]
        with _connect(remote) as connection:
            remote_ranks = self._greet(connection, remote)
            posted = time.monotonic()
            for rank, cache in enumerate(self._caches):
                message = {
                    "op": "read",
                    "request_id": remote.request_id,
                    "blocks": wanted,
                    "rank": rank % remote_ranks,
                    "digest": transfer.digest,
                }
                wire.send_message(connection, message)
                self._receive(connection, cache, transfer.local)
            wire.send_message(connection, {"op": "done", "request_id": remote.request_id})
        blocks = len(transfer.local) * len(self._caches)
        return Received(
            request_id=transfer.request_id,
            seconds=time.monotonic() - posted,
            post_seconds=posted - started,
            bytes=blocks * self._layout.bytes_per_block,
            descriptors=blocks * self._layout.layers * self._layout.parts,
        )

    def _greet(self, connection: socket.socket, remote: RemotePrefill) -> int:
        wire.send_message(connection, {"op": "hello"})
        greeting = wire.receive_message(connection)
        if greeting.get("engine_id") != remote.engine_id:
            raise TransferError("the engine behind the side channel is another one")
        if greeting.get("compatibility") != self._compatibility:
            raise TransferError("NIXL compatibility hash mismatch (simulated)")
        ranks = greeting.get("ranks")
        expected = 1 if self._layout.replicated else len(self._caches)
        if ranks != expected:
            raise TransferError(f"the prefill has {ranks} KV ranks where {expected} are needed")
        return expected

    @staticmethod
    def _receive(connection: socket.socket, cache: PagedKV, blocks: tuple[int, ...]) -> None:
        answer = wire.receive_message(connection)
        if "error" in answer:
            raise TransferError(str(answer["error"]))
        for block in blocks:
            for view in cache.block_views(block):
                wire.receive_into(connection, view)

    @staticmethod
    def _send(remote: RemotePrefill, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), _connect(remote) as connection:
            wire.send_message(connection, message)


def _connect(remote: RemotePrefill) -> socket.socket:
    connection = socket.create_connection((remote.host, remote.port), timeout=_CONNECT_SECONDS)
    connection.settimeout(_SILENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
