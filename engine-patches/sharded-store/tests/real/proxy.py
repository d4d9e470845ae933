"""A proxy in front of a server that breaks what comes back, in the ways networks and bugs do."""

from __future__ import annotations

import contextlib
import socket
import threading

from kvserving_sharded_store.address import Address

from .serving import free_port


class Proxy:
    """``fault``: "" none, "length" another length in a value's header, "cut" half of the bytes then
    the end, "stall" nothing any more, "garbage" no protocol at all, "close" the end at once."""

    def __init__(self, target: int) -> None:
        self.fault = ""
        self._target = target
        self._closed = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", int(self._listener.getsockname()[1]))

    def drop(self) -> None:
        """End all connections, stalled ones too."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for call in (
                    lambda n=near, f=far: self._up(n, f),
                    lambda n=near, f=far: self._down(n, f),
                ):
                    threading.Thread(target=call, daemon=True).start()

    def _up(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
        self._end(near, far)

    def _down(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if self.fault == "length":
                    data = data.replace(b"$4096\r\n", b"$4095\r\n").replace(
                        b"$4194304\r\n", b"$4194303\r\n"
                    )
                elif self.fault == "garbage":
                    data = b"HTTP/1.1 400 Bad Request\r\n\r\n"
                elif self.fault == "stall":
                    continue
                elif self.fault == "close":
                    break
                elif self.fault == "cut":
                    near.sendall(data[: len(data) // 2])
                    break
                near.sendall(data)
        self._end(near, far)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
