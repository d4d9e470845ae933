"""Sends SIGTERM again to an engine that was to be stopped and serves on.

vLLM loses a SIGTERM that comes in some moments of its start: its handler raises an exception, which
the code that it interrupts may swallow. The kubelet sends none a second time, so such an engine
would start, serve nobody, and be killed when the pod's grace period is over. The agent knows from
the helper that the kubelet is about to stop the engine, and the containers of the pod share their
processes. A process that began after that is another engine, and is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from kvserving_agent import facts, identity
from kvserving_agent.watch import Watcher

PERIOD = 1.0
"""Seconds between two looks."""

_STARTED = 19
"""Index of the start time in /proc/PID/stat behind the name, in ticks since boot."""

_log = logging.getLogger(__name__)


class Reminder:
    """Reminds the engine on `port` some `patience` seconds after it was to be stopped."""

    def __init__(self, watcher: Watcher, port: int, patience: float) -> None:
        self._watcher = watcher
        self._port = port
        self._patience = patience
        self._since: float | None = None
        self._due = 0.0

    def stopping(self) -> None:
        """The kubelet stops the engine as of now."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._since, self._due = now, now + self._patience

    async def remind_forever(self) -> None:
        """The loop; it does nothing until the engine is to be stopped."""
        while True:
            await asyncio.sleep(PERIOD)
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            if self._since is not None and now >= self._due and self._serves():
                self._due = now + self._patience
                self._remind(self._since)

    def _serves(self) -> bool:
        watcher = self._watcher
        return facts.is_up(watcher.known, watcher.clock(), watcher.stale_after) is True

    def _remind(self, since: float) -> None:
        for pid in processes(self._port):
            try:
                if started(pid) <= since:
                    os.kill(pid, signal.SIGTERM)
                    _log.warning("the engine was to stop and serves on", extra={"pid": pid})
                else:
                    self._since = None
            except (OSError, ValueError, IndexError) as error:
                _log.debug("a process is not reachable", extra={"pid": pid, "why": str(error)})


def processes(port: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Processes that hold a socket listening on `port`, as far as they may be looked into."""
    links = {f"socket:[{inode}]" for inode in identity.listeners(port, proc)}
    for folder in proc.glob("[0-9]*") if links else ():
        try:
            held = {os.readlink(each) for each in (folder / "fd").iterdir()}  # noqa: PTH115
        except OSError:
            continue
        if held & links:
            yield int(folder.name)


def started(pid: int, proc: Path = Path("/proc")) -> float:
    """When a process began, in seconds since boot."""
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")
