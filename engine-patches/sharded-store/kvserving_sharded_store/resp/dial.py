"""Opens connections: one deadline for all addresses of a host, and for the TLS handshake."""

from __future__ import annotations

import socket
import ssl

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.errors import InstanceError
from kvserving_sharded_store.resp.transport import Plain, Tls, Transport, remaining, translated


def connect(
    address: Address, context: ssl.SSLContext | None, deadline: float, low_water: int = 0
) -> Transport:
    """Open a connection.

    Args:
        address: Where to.
        context: How to verify the other side; needed for a TLS address.
        low_water: Bytes that wake the reader of a large value; 0 for any.
        deadline: When to give up; looking the name up is the resolver's time, not ours.

    Raises:
        InstanceError: When there is none.
    """
    raw = _open(address, deadline)
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not address.tls:
            return Plain(raw, low_water)
        if context is None:
            raise InstanceError("a TLS address without a TLS context")
        raw.settimeout(remaining(deadline))
        return Tls(context.wrap_socket(raw, server_hostname=address.host))
    except OSError as error:
        raw.close()
        raise translated(error) from error
    except InstanceError:
        raw.close()
        raise


def _open(address: Address, deadline: float) -> socket.socket:
    """A connected socket to the first of a host's addresses that answers.

    One that drops what it is sent leaves the others their share of the time.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be one
        raise InstanceError(f"{address.host}: {error}") from error
    failed = InstanceError(f"{address.host}: no address")
    for index, (family, kind, protocol, _, place) in enumerate(found):
        try:
            return _dial(
                socket.socket(family, kind, protocol),
                place,
                remaining(deadline) / (len(found) - index),
            )
        except OSError as error:
            failed = translated(error)
    raise failed


def _dial(raw: socket.socket, place: object, seconds: float) -> socket.socket:
    try:
        raw.settimeout(seconds)
        raw.connect(place)  # type: ignore[arg-type]
    except OSError:
        raw.close()
        raise
    return raw
