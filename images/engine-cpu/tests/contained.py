"""Processes of our built images without a cluster: `buildah run` in a chroot, host network.

For the long tests beside this file. Needs root and images of `python -m cluster build`. What a
container leaves running is found by its mount namespaces, which nothing else shares, and ended by
process id. (Not by a mark in the environment: Valkey and vLLM write their titles over it.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster import buildah, imagefiles

FILES = "/mnt/proof"


class Container:
    """One container of an image of ours, as the image's own user."""

    def __init__(self, image: str, log: Path) -> None:
        """Makes the container; nothing runs yet."""
        self.name = buildah.output("from", imagefiles.reference(image))
        self._log = log
        self._files = log.with_suffix(".files")
        self._files.mkdir()
        self._files.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self._spaces: set[str] = set()

    def write(self, name: str, text: str) -> str:
        """Makes a file that everybody can read; returns its path in the container."""
        path = self._files / name
        path.write_text(text)
        path.chmod(0o644)
        return f"{FILES}/{name}"

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Starts the command in the background; its output goes to the log."""
        flags = [f"--env={key}={value}" for key, value in (env or {}).items()]
        flags.append(f"--volume={self._files}:{FILES}:ro")
        line = buildah.command("run", "--isolation=chroot", *flags, self.name, "--", *command)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                line[line.index("unshare") :],  # without nice: an engine is not a build
                env=buildah.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What the command has printed."""
        return self._log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether the command has not ended."""
        return self._process is not None and self._process.poll() is None

    def processes(self) -> list[int]:
        """Every process of this container, buildah's own among them."""
        if self._process is None:
            return []
        spaces = {pid: _mount_namespace(pid) for pid in _all_processes()}
        # Each run begins a session and, by `unshare`, a namespace; buildah adds one inside it.
        session = [pid for pid in spaces if _session(pid) == self._process.pid]
        self._spaces |= {spaces[pid] for pid in session} - {_mount_namespace(os.getpid()), ""}
        return [pid for pid, space in spaces.items() if space in self._spaces]

    def stop(self) -> None:
        """Ends everything that runs in the container."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(timeout=30)
        wait_for(lambda: not self.processes(), "the container's processes to end", 30)

    def remove(self) -> None:
        """Ends everything that runs in the container, and deletes it."""
        self.stop()
        buildah.output("rm", self.name)


def _all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _mount_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:  # it has ended, or is not ours to see
        return ""


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Polls a condition until it holds; fails with its name after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def healthy(port: int) -> bool:
    """Whether /health answers 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
