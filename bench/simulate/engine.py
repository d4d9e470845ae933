"""Starts engine-sim and Valkey as processes, and the program, for the scripts beside this one."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Process:
    """A server on a port of its own, with its output in a file."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=output, stderr=output
            )

    def alive(self) -> None:
        assert self.process.poll() is None, self._log.read_text()[-2000:]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class EngineSim(Process):
    """The engine, started and healthy; ``python`` is that of an environment with LMCache."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        rate: float,
        token_seconds: float,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics").mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [python, "-P", "-m", "kvserving_engine_sim", "serve", "sim/mla"]
        command += ["--served-model-name", "sim", "--host", "127.0.0.1", "--port", str(port)]
        paths = (ROOT / "images/engine-sim", ROOT / "engine-patches/sharded-store")
        base = {
            "PYTHONPATH": ":".join(map(str, paths)),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "PROMETHEUS_MULTIPROC_DIR": str(folder / "metrics"),
            "TMPDIR": str(folder),
            "KVSERVING_SIM_TOKENS_PER_SECOND": str(rate),
            "KVSERVING_SIM_INTER_TOKEN_SECONDS": str(token_seconds),
        }
        super().__init__(folder / "log", [*command, *flags], {**base, **(environment or {})})
        while not self._healthy():
            time.sleep(0.1)

    def _healthy(self) -> bool:
        self.alive()
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200
        except OSError:
            return False


class Valkey(Process):
    """A server that keeps nothing and asks for no password."""

    def __init__(self, folder: Path, program: str, port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        super().__init__(folder / "log", [*command, "--dir", str(folder)], {})
        while True:
            self.alive()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kvserving(*arguments: str) -> dict[str, Any]:
    """The program's answer as data."""
    command = [sys.executable, "-m", "kvserving_operator.cli.main", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
