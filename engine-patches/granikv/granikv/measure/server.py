"""A real SGLang server as a child process: start, ask, read metrics, stop."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMON = (
    "--host", "127.0.0.1", "--sampling-backend", "pytorch", "--skip-server-warmup",
    "--enable-metrics", "--disable-prefill-cuda-graph", "--trust-remote-code",
)  # fmt: skip


def arguments(model: Path, port: int, flags: Sequence[str]) -> list[str]:
    """What `sglang.launch_server` gets."""
    return ["--model-path", str(model), "--port", str(port), *COMMON, *flags]


class Server:
    """One server in its own process group; its log goes to a file."""

    def __init__(
        self, name: str, port: int, model: Path, flags: Sequence[str], log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.port, self.log = name, port, log
        self.started, self.seconds = time.monotonic(), 0.0
        command = [
            sys.executable, "-m", "sglang.launch_server", *arguments(model, port, flags)
        ]  # fmt: skip
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
                start_new_session=True,
            )  # fmt: skip

    def get(self, path: str, *, port: int | None = None, timeout: float = 10.0) -> str:
        """Body of a GET."""
        url = f"http://127.0.0.1:{port or self.port}{path}"
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: bytes | None = None, timeout: float = 600.0) -> Any:
        """JSON answer of a POST; None when the body is not JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body or b"{}",
            {"Content-Type": "application/json"}, method="POST",
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        try:
            return json.loads(text)
        except ValueError:
            return None

    def put(self, port: int, path: str, body: Mapping[str, Any], match: str) -> tuple[int, Any]:
        """Status and JSON answer of a PUT to the control contract."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
            {"Content-Type": "application/json", "If-Match": match}, method="PUT",
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def metrics(self, *, port: int | None = None) -> dict[str, float]:
        """Sum of every sample, by name."""
        found: dict[str, float] = {}
        for line in self.get("/metrics", port=port).splitlines():
            if line and not line.startswith("#"):
                name = line.split("{")[0].split(" ")[0]
                found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return found

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            self.get("/get_model_info", timeout=2)
        except OSError:
            return False
        return True

    def tail(self, lines: int = 30) -> str:
        """End of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, patience: float = 8.0) -> None:
        """SIGTERM, then SIGKILL to what is left of its group."""
        if self.alive():
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def end_on_terminate() -> None:
    """SIGTERM ends this process by an exception, so that the servers it started are stopped."""

    def leave(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def wait(servers: Sequence[Server], limit: float) -> list[Server]:
    """Until each answers, has died, or the limit is over; those that answer."""
    left, up = list(servers), []
    end = time.monotonic() + limit
    while left and time.monotonic() < end:
        for server in list(left):
            if not server.alive():
                left.remove(server)
            elif server.ready():
                server.seconds = time.monotonic() - server.started
                left.remove(server)
                up.append(server)
        time.sleep(0.25)
    return up


def first_tokens(servers: Sequence[Server], limit: float = 200.0) -> None:
    """One short request to each at the same time: the first one waits for kernels to be built."""
    sampling = {"max_new_tokens": 3, "temperature": 0, "ignore_eos": True}
    body = json.dumps({"input_ids": [5, 6, 7, 8], "sampling_params": sampling}).encode()

    def ask(server: Server) -> None:
        with contextlib.suppress(OSError):
            server.post("/generate", body, limit)

    threads = [threading.Thread(target=ask, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
