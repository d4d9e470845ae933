"""The agent's listening sockets, which outlive the agent: its supervisor opens and holds them.

While no agent is there to take connections in, they wait in the kernel's queue instead of being
refused, and the next one answers them.
"""

from __future__ import annotations

import errno
import socket

BACKLOG = 64
"""Connections that wait to be taken in, and that are taken in at once."""
_ABSENT = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on `host` (empty: on every address of both IP families).

    Raises:
        OSError: The port is taken, or no such address is here; the text says which.
    """
    found: list[socket.socket] = []
    flags = socket.AI_PASSIVE
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    for family, kind, protocol, _, address in sorted(set(infos)):
        try:
            found.append(_listen(family, kind, protocol, address))
        except OSError as error:
            # A machine without IPv6 still has names for it.
            if error.errno not in _ABSENT or host:
                raise OSError(error.errno, f"{address[0]} port {port}: {error.strerror}") from None
    if not found:
        raise OSError(errno.EADDRNOTAVAIL, f"port {port}: no address to listen on")
    return found


def _listen(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened
