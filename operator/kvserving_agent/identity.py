"""The engine start id: one name for one life of the engine process.

It must change when the engine's container restarts in place (same pod, same address, counters back
at zero) and must not change otherwise, in particular not when the *agent* restarts, when a scrape
fails or when the engine hangs. What the agent can see decides how:

1. **The listening socket on the engine's port.** A pod's containers share one network namespace,
   so `/proc/net/tcp` shows the engine's listener with its inode number, which the kernel hands out
   anew for each socket. vLLM opens exactly one listener in its main process before it starts
   anything else, keeps it for life, and hands the same socket to its API server processes
   (vllm 0.32: entrypoints/launchers/launcher.py `create_server_socket`, entrypoints/cli/serve.py).
   So: new process, new socket, new inode; same process, same inode. The id is a hash of the
   machine's boot id (inode numbers start again at boot) and the inode numbers. Nothing is
   remembered, hence an agent that restarts comes to the same id. Numbers are 32 bits wide and
   shared by the whole machine: two lives meet the same one with a chance of 1 in 4 billion.
2. **`process_start_time_seconds`** of the engine's metrics page, where /proc tells nothing. vLLM
   shows it only without PROMETHEUS_MULTIPROC_DIR.
3. Otherwise there is no id (null), and a consumer must not act as if there were.

Walking from the inode to the process and its start time was left out on purpose: it needs a shared
process namespace and the engine's own user id (readable /proc/PID/fd), costs a look at every file
descriptor of every worker, and adds nothing, since a process cannot restart and keep its socket.
Health alone was left out too: it misses a restart between two questions and takes a busy engine
for a dead one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

# Field values of /proc/net/tcp (kernel: Documentation/networking/proc_net_tcp.rst).
_LISTEN = b"0A"
_STATE, _LOCAL, _INODE = 3, 1, 9
# About one line. The kernel fills as much of the table as is asked for, and walks the machine's
# whole hash of connections (262,144 buckets on 24 GiB, 5 ms) to go on behind the listeners.
_READ_BYTES = 160

_log = logging.getLogger(__name__)


class Source(StrEnum):
    """Where a start id was taken from."""

    SOCKET = "Socket"
    START_TIME = "StartTime"


@dataclass(frozen=True)
class StartId:
    """The name of one life of the engine process."""

    value: str
    source: Source


def from_listener(port: int, proc: Path = Path("/proc")) -> StartId | None:
    """The id by the listening sockets on `port`; None when nobody listens or /proc is closed."""
    inodes = listeners(port, proc)
    return StartId(_hash(_boot_id(proc), *sorted(inodes)), Source.SOCKET) if inodes else None


def from_start_time(seconds: float) -> StartId:
    """The id by the engine's own report of when its process started (seconds since 1970)."""
    return StartId(_hash(f"{seconds:.2f}"), Source.START_TIME)


def listeners(port: int, proc: Path = Path("/proc")) -> set[str]:
    """Inode numbers of the sockets that listen on `port`, of one IP family; empty without any."""
    for table in ("tcp", "tcp6"):
        if inodes := _listeners(port, proc / "net" / table):
            return inodes
    return set()


def _listeners(port: int, table: Path) -> set[str]:
    """Inode numbers of the sockets that listen on `port`.

    Linux lists listeners before connections; the walk ends at the first connection after a match.
    """
    suffix = b":%04X" % port
    found: set[str] = set()
    try:
        with table.open("rb", buffering=_READ_BYTES) as lines:
            for line in lines:
                fields = line.split()
                if len(fields) <= _INODE or fields[_STATE] != _LISTEN:
                    if found:
                        break
                elif fields[_LOCAL].endswith(suffix):
                    found.add(fields[_INODE].decode("ascii", "replace"))
    except OSError as error:
        _log.debug("a socket table is not readable", extra={"table": str(table), "why": str(error)})
    return found


def _boot_id(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _hash(*parts: str) -> str:
    return sha256(" ".join(parts).encode()).hexdigest()[:16]
