"""How much memory a process has, how much its container may have, and how long it waits for a core.

A container that exceeds its limit is killed as a whole, with its supervisor (cgroup v2), and the
pod leaves service meanwhile. An agent that comes near is ended before: the next one begins small.
"""

from __future__ import annotations

import os
from pathlib import Path

MOST = 0.85
"""Share of the container's limit that an agent may have."""
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_RESIDENT = 1
"""Index in /proc/PID/statm, in pages."""
_WAITED = 1
"""Index in /proc/PID/schedstat, in nanoseconds."""


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


def waited(pid: int, proc: Path = Path("/proc")) -> float:
    """Seconds that the process' main thread was ready to run and got no core; 0 if untold."""
    try:
        return int((proc / str(pid) / "schedstat").read_bytes().split()[_WAITED]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
