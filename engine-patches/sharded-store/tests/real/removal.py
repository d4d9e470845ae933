"""Chunks that go between a lookup and its load: removed as soon as they were looked up."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from types import TracebackType

from .servers import Server

_EXISTS = re.compile(rb'"EXISTS" "([^"]+)"')


class Removal:
    """While it is entered: sees one lookup of an instance, and removes one of its chunks at once.

    Attributes:
        removed: The key, none when nothing was looked up.
    """

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.removed: bytes | None = None
        self._seen = socket.create_connection(("127.0.0.1", server.port), 5)
        self._seen.sendall(b"MONITOR\r\n")
        assert self._seen.recv(5) == b"+OK\r\n"
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Removal:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._seen.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._seen.close()

    def _watch(self) -> None:
        self._seen.settimeout(None)
        text = b""
        while self.removed is None:
            try:
                more = self._seen.recv(65536)
            except OSError:
                return
            if not more:
                return
            text += more
            # A lookup asks for all of a rank's chunks in one go, so they are all here or none is.
            keys = _EXISTS.findall(text)
            if keys:
                self.removed = self._chance.choice(keys)
                self._server.ask(b"UNLINK", self.removed)
