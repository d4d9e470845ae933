"""How much memory a process has, how much its container may have, and how long it waits for a core.

A container that exceeds its limit is killed as a whole, with its supervisor (cgroup v2), and the
pod leaves service meanwhile. An agent that comes near is ended before: the next one begins small.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MOST = 0.85
"""Share of the container's limit that an agent may have."""
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_RESIDENT = 1
"""Index in /proc/PID/statm, in pages."""
_WAITED = 1
"""Index in /proc/PID/schedstat, in nanoseconds."""
_STATE, _USER, _SYSTEM = 0, 11, 12
"""Indices in /proc/PID/stat behind the name, times in clock ticks."""
_READY = "R"
"""Runs, or would if it had a core."""


@dataclass(frozen=True)
class Turn:
    """What the kernel tells of a process' main thread and the cores.

    `state` is a letter of proc(5), empty if untold; `used` is how long it ran, in clock ticks, and
    `waited` how long it was ready and had no core, in seconds: up to when it last got one.
    """

    state: str = ""
    used: int = 0
    waited: float = 0.0


def most(cgroup: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Bytes that an agent may have; None: no limit is to be seen."""
    for name in _LIMITS:
        try:
            return int((cgroup / name).read_text()) * MOST
        except (OSError, ValueError):
            # Absent, or "max".
            continue
    return None


def resident(pid: int, proc: Path = Path("/proc")) -> int:
    """Bytes of memory that a process has; 0 once it is gone."""
    try:
        pages = int((proc / str(pid) / "statm").read_bytes().split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def turn(pid: int, proc: Path = Path("/proc")) -> Turn:
    """How a process fares for cores; whatever is not told is as in `Turn()`."""
    folder = proc / str(pid)
    try:
        waited = int((folder / "schedstat").read_bytes().split()[_WAITED]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    try:
        # The name may have spaces and brackets.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return Turn(fields[_STATE], int(fields[_USER]) + int(fields[_SYSTEM]), waited)
    except (OSError, ValueError, IndexError):
        return Turn(waited=waited)


def starved(before: Turn, after: Turn, seconds: float) -> bool:
    """Whether in these `seconds` the thread mostly waited for a core, or waits for one yet.

    The wait that is under way is counted only once it is over: a thread that is ready while neither
    its run nor its wait grew had no core for all of that time.
    """
    waits = after.state == _READY and (before.used, before.waited) == (after.used, after.waited)
    return waits or after.waited - before.waited > seconds / 2
