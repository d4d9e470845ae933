"""The agent's listening sockets, which outlive the agent: its supervisor opens and holds them.

While no agent is there to take connections in, they wait in the kernel's queue instead of being
refused, and the next one answers them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

BACKLOG = 64
"""Connections that wait to be taken in, and that are taken in at once."""
_ABSENT = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_HOST = "KVSERVING_AGENT_HOST"
_PORT = "KVSERVING_AGENT_PORT"
_HOST_MUST = "it must be an address of this machine, or empty for all of them"
_REMEDIES = {
    errno.EADDRINUSE: "end what listens there, or set it to a port that is free",
    errno.EACCES: "set it to a port from 1024 on",
}
_Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


def sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on `host` (empty: on every address of both IP families).

    Raises:
        OSError: The port is taken, or no such address is here; the text names the setting.
    """
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in _addresses(host, port):
        try:
            found.append(_listen(family, kind, protocol, address))
        except OSError as error:
            # A machine without IPv6 still has names for it.
            if error.errno not in _ABSENT or host:
                for each in found:
                    each.close()
                raise OSError(_told(error, address[0], port)) from None
    if not found:
        raise OSError(f"{_PORT} is {port}: this machine has no address of IPv4 or IPv6")
    return found


def _addresses(host: str, port: int) -> Sequence[_Info]:
    flags = socket.AI_PASSIVE
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise OSError(f"{_HOST} is {host!r}: {why}; {_HOST_MUST}") from None
    return sorted(set(infos))


def _told(error: OSError, address: object, port: int) -> str:
    """What does not work, which setting says so, and what to do."""
    if error.errno in _ABSENT:
        return f"{_HOST} is {address}: {error.strerror}; {_HOST_MUST}"
    remedy = _REMEDIES.get(error.errno or 0, "set it to another port")
    return f"{_PORT} is {port}: {address} port {port}: {error.strerror}; {remedy}"


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
