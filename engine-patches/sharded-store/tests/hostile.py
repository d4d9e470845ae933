"""Servers that speak the protocol for as long as they like, for the tests of the client."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kvserving_sharded_store.address import Address

PONG = b"+PONG\r\n"


class Hostile:
    """A server that is right about its greeting, if it greets, and then as ``speak`` has it."""

    def __init__(
        self,
        speak: Callable[[socket.socket], None],
        *,
        window: int = 0,
        greets: bool = True,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._speak, self._greets, self._context = speak, greets, context
        self._listener = socket.socket()
        if window:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._open: list[socket.socket] = []
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", int(self._listener.getsockname()[1]))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self.ended.is_set():
                near, _ = self._listener.accept()
                if self._context is not None:
                    near = self._context.wrap_socket(near, server_side=True)
                self._open.append(near)
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._greets:
                near.recv(1000)
                near.sendall(PONG)
            self._speak(near)

    def close(self) -> None:
        self.ended.set()
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@dataclass
class Drip:
    """Sends one byte at a time, or takes a few: enough for the other side to send on."""

    reply: bytes = b""
    pause: float = 0.01
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, near: socket.socket) -> None:
        if not self.reply:
            while not self.ended.wait(self.pause) and near.recv(1000):
                pass
            return
        near.recv(1000)
        for byte in self.reply:
            near.sendall(bytes([byte]))
            if self.ended.wait(self.pause):
                return
