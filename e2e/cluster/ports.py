"""TCP ports: free ones for control planes that run side by side, and who holds a taken one."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from cluster.settings import Ports

#: Below Linux's range of outgoing ports and NodePorts: nothing else takes these by chance.
FREE_RANGE = range(17000, 29000)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def pick_free(count: int) -> list[int]:
    """Distinct free ports, at random so that two tools at once rarely choose the same."""
    found: list[int] = []
    for port in random.sample(FREE_RANGE, len(FREE_RANGE)):
        if is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports between {FREE_RANGE.start} and {FREE_RANGE.stop}")


def free_ports() -> Ports:
    """Free ports for one control plane."""
    return Ports(*pick_free(len(fields(Ports))))


def listeners(ports: Iterable[int]) -> dict[int, str]:
    """Which of the ports something listens on: port to `program (pid)`, `?` when unseen."""
    wanted = set(ports)
    inodes = _listening_inodes(wanted)
    taken = dict.fromkeys(inodes.values(), "?")
    if taken:
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            process = link.parent.parent
            try:
                target = str(link.readlink())
                if target.startswith("socket:[") and (port := inodes.get(target[8:-1])):
                    taken[port] = f"{(process / 'comm').read_text().strip()} ({process.name})"
            except OSError:
                continue  # it ended meanwhile
    return taken


def _listening_inodes(wanted: set[int]) -> dict[str, int]:
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            row = line.split()
            port = int(row[1].rpartition(":")[2], 16)
            if row[3] == "0A" and port in wanted:
                inodes[row[9]] = port
    return inodes
