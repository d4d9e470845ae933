"""The prefill's side channel: other engines read leased blocks from it."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from typing import Any

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer import wire
from kvserving_engine_sim.transfer.leases import Leases, RefusedError

_log = logging.getLogger(__name__)

# A reader that stops reading must not pin blocks for ever.
_IDLE_SECONDS = 60.0


class SideChannel:
    """A TCP server on VLLM_NIXL_SIDE_CHANNEL_HOST:PORT, one thread a connection."""

    def __init__(self, settings: Settings, caches: list[PagedKV], leases: Leases) -> None:
        self._settings = settings
        self._caches = caches
        self._leases = leases
        self._compatibility = wire.compatibility(settings)
        address = (settings.side_channel_host, settings.side_channel_port)
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        self._server = _server_class(family)(address, self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="side-channel", daemon=True
        )

    def start(self) -> None:
        """Serve in the background."""
        self._thread.start()
        host, port = self._server.server_address[:2]
        _log.info("a simulation of NIXL (plain TCP) listens on %s:%s", host, port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        channel = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(_IDLE_SECONDS)
                try:
                    while True:
                        channel.answer(self.request, wire.receive_message(self.request))
                except OSError as error:
                    _log.debug("a side channel connection ended: %s", error)

        return Handler

    def answer(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """Answer one message of a reader."""
        operation = message.get("op")
        if operation == "hello":
            wire.send_message(connection, self._greeting())
        elif operation == "read":
            self._read(connection, message)
        elif operation == "renew":
            self._leases.renew([str(name) for name in message.get("request_ids", [])])
        elif operation == "done":
            self._leases.finish(str(message.get("request_id")))
        else:
            raise wire.WireError("the peer does not speak the side channel's protocol")

    def _greeting(self) -> dict[str, Any]:
        return {
            "protocol": wire.PROTOCOL,
            "engine_id": self._settings.transfer.engine_id,
            "compatibility": self._compatibility,
            # Replicated context parallelism: rank 0 serves the KV of all.
            "ranks": 1 if self._settings.layout.replicated else len(self._caches),
        }

    def _read(self, connection: socket.socket, message: dict[str, Any]) -> None:
        try:
            blocks = tuple(int(block) for block in message["blocks"])
            cache = dict(enumerate(self._caches))[int(message["rank"])]
            request_id, digest = str(message["request_id"]), str(message["digest"])
        except (KeyError, TypeError, ValueError):
            wire.send_message(connection, {"error": "malformed read"})
            return
        try:
            lease = self._leases.begin_read(request_id, blocks, digest)
        except RefusedError as error:
            wire.send_message(connection, {"error": str(error)})
            return
        try:
            wire.send_message(connection, {"tokens": lease.tokens})
            for block in blocks:
                for view in cache.block_views(block):
                    connection.sendall(view)
        finally:
            self._leases.end_read(lease)


def _server_class(family: socket.AddressFamily) -> type[socketserver.ThreadingTCPServer]:
    class Server(socketserver.ThreadingTCPServer):
        address_family = family
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    return Server
