"""The control contract over HTTP, on loopback, in threads of its own. Standard library alone.

Loopback is the whole protection: the agent in the same pod is the door, with a token. A request has
a deadline and a size limit, so that no caller can hold a thread for good.
"""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from kvserving_sharded_store.control import Control, Reply

_LIMIT: Final = 64 * 1024
"""Bytes of a settings body; a full one has about 200."""

_DEADLINE: Final = 5.0
"""Seconds from one answer until all of the next request is here; and for sending an answer."""


class _Reader(io.RawIOBase):
    """What comes on a socket, until a deadline for all of it: silence and a trickle end alike."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._until = 0.0

    def readable(self) -> bool:
        return True

    def renew(self) -> None:
        """The deadline counts from now on."""
        self._until = time.monotonic() + _DEADLINE

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._source.settimeout(left)
        return self._source.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    control: Control
    timeout = _DEADLINE
    protocol_version = "HTTP/1.1"
    server_version = "kvserving-sharded-store"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = _Reader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.renew()
        super().handle_one_request()

    def do_GET(self) -> None:
        if self.path == "/v1/state":
            self._send(self.control.state())
        else:
            self._send(Reply(404, {"message": "GET /v1/state, PUT /v1/settings"}))

    def do_PUT(self) -> None:
        body = self._body()
        if body is None:
            return
        if self.path != "/v1/settings":
            self._send(Reply(404, {"message": "GET /v1/state, PUT /v1/settings"}))
            return
        try:
            settings = json.loads(body)
        except (ValueError, RecursionError):
            self._send(Reply(422, {"field": "(body)", "remedy": "send one JSON object"}))
            return
        self._send(self.control.put(settings, self.headers.get("If-Match")))

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        # isascii: isdigit alone accepts superscripts, which int refuses.
        if not (length.isascii() and length.isdigit()) or int(length) > _LIMIT:
            self.close_connection = True
            self._send(Reply(413, {"message": f"send Content-Length, at most {_LIMIT}"}))
            return None
        return self.rfile.read(int(length))

    def _send(self, reply: Reply) -> None:
        body = json.dumps(reply.body).encode()
        self.connection.settimeout(_DEADLINE)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (name of the base class)
        """Nothing: the agent polls every few seconds."""


class ControlServer:
    """Serves a ``Control`` until closed.

    Args:
        control: What to serve.
        port: Port on loopback; 0 takes any free one.
    """

    def __init__(self, control: Control, port: int) -> None:
        handler = type("_BoundHandler", (_Handler,), {"control": control})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        # Handler threads end by their own deadline; close() does not wait for them.
        self._server.block_on_close = False
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="kvs-control",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening; returns within a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=1.0)
