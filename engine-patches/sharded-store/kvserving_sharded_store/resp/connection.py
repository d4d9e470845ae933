"""The protocol on one connection: AUTH, GET into buffers, SET, EXISTS; pipelined. One thread's."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvserving_sharded_store.address import Address
from kvserving_sharded_store.resp.dial import connect
from kvserving_sharded_store.resp.errors import ProtocolError, RefusedError
from kvserving_sharded_store.resp.transport import Transport

_NULL: Final = b"$-1\r\n"
_END: Final = b"+PONG\r\n"
"""Reply to the PING behind every batch of GETs: bytes that come in any case, see ``_AHEAD``."""

_AHEAD: Final = len(_NULL) + len(_END)
"""Bytes read together with a value of the reply behind it: while one is due, so many come at least
(a missing key, then the end), and they hold the whole header of any value below 1 GB. So a value
costs one call, and its length is known before its bytes are waited for."""

_LINE_LIMIT: Final = 1024
_NAME: Final = b"kvserving-sharded-store"


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password of AUTH; an empty user means the default one."""

    user: str
    password: str = field(repr=False)


def command(*parts: bytes) -> bytes:
    """A command as the server wants it."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


class Connection:
    """A ready connection: authenticated, in its database.

    Attributes:
        aborted: Whether it was made useless by ``abort``.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.aborted = False

    @classmethod
    def open(
        cls,
        address: Address,
        *,
        credentials: Credentials | None,
        context: ssl.SSLContext | None,
        deadline: float,
        low_water: int = 0,
    ) -> Connection:
        """Connect and authenticate.

        Raises:
            InstanceError: When that does not succeed before the deadline.
        """
        connection = cls(connect(address, context, deadline, low_water))
        try:
            connection._greet(address, credentials, deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def _greet(self, address: Address, credentials: Credentials | None, deadline: float) -> None:
        commands = []
        if credentials is not None:
            user = [credentials.user.encode()] if credentials.user else []
            commands.append(command(b"AUTH", *user, credentials.password.encode()))
        if address.database:
            commands.append(command(b"SELECT", b"%d" % address.database))
        commands.append(command(b"PING"))
        self._transport.send([b"".join(commands)], deadline)
        for reply in self._lines(len(commands), deadline):
            if reply[:1] != b"+":
                raise RefusedError(reply[1:].decode("utf-8", "replace"))

    def get(
        self,
        keys: Sequence[bytes],
        buffers: Sequence[memoryview],
        deadline: float,
        on_reply: Callable[[int, bool], None],
    ) -> None:
        """Read the values of keys into buffers.

        Args:
            keys: What to read.
            buffers: One per key, as long as its value must be; may be half written on an error.
            deadline: For the whole.
            on_reply: Called in order with the index and whether the value is in its buffer.

        Raises:
            InstanceError: The connection must be closed; keys without a call have no answer.
        """
        asked = [command(b"GET", key) for key in keys]
        self._transport.send([b"".join([*asked, command(b"PING")])], deadline)
        ahead = self._read(_AHEAD, deadline)
        for index, buffer in enumerate(buffers):
            wanted = _AHEAD if index + 1 < len(buffers) else len(_END)
            if ahead.startswith(_NULL):
                present, ahead = False, ahead[len(_NULL) :]
            else:
                present, ahead = True, self._value(buffer, ahead, deadline, wanted)
            on_reply(index, present)
            if len(ahead) < wanted:
                ahead += self._read(wanted - len(ahead), deadline)
        if ahead != _END:
            raise ProtocolError("more than was asked for")

    def _value(self, buffer: memoryview, ahead: bytes, deadline: float, wanted: int) -> bytes:
        """Read a value whose first bytes are here; the bytes behind it, ``wanted`` if not more."""
        size = len(buffer)
        header = b"$%d\r\n" % size
        if len(ahead) < len(header) and header.startswith(ahead):
            ahead += self._read(len(header) - len(ahead), deadline)
        if not ahead.startswith(header):
            raise self._unexpected(ahead, header, deadline)
        here = ahead[len(header) :]
        buffer[: min(size, len(here))] = here[:size]
        behind = here[size:]
        if len(here) < size + 2:
            rest = bytearray(2 + wanted - len(behind))
            # The common case in one call: the value, what ends it, the start of the next reply.
            self._transport.fill([buffer[len(here) :], memoryview(rest)], deadline)
            behind += bytes(rest)
        if behind[:2] != b"\r\n":
            raise ProtocolError("a value that does not end where its length says")
        return behind[2:]

    def _unexpected(self, ahead: bytes, header: bytes, deadline: float) -> Exception:
        line = bytearray(ahead)
        while b"\r\n" not in line and len(line) < _LINE_LIMIT:
            line += self._transport.some(_LINE_LIMIT - len(line), deadline)
        text = bytes(line.split(b"\r\n")[0])
        # A key that holds something else is that key's affair alone.
        if text[:1] == b"-" and not text.startswith(b"-WRONGTYPE"):
            return RefusedError(text[1:].decode("utf-8", "replace"))
        return ProtocolError(f"{text[:40]!r} where {header.strip()!r} was expected")

    def set(
        self,
        keys: Sequence[bytes],
        values: Sequence[memoryview],
        deadline: float,
        on_reply: Callable[[int, bool], None],
    ) -> None:
        """Store values; ``on_reply`` as in ``get``, with whether the server took it."""
        buffers: list[bytes | memoryview] = []
        for key, value in zip(keys, values, strict=True):
            buffers += [
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(value)),
                value,
                b"\r\n",
            ]
        self._transport.send(buffers, deadline)
        for index, reply in enumerate(self._lines(len(keys), deadline)):
            on_reply(index, reply == b"+OK")

    def exists(
        self, keys: Sequence[bytes], deadline: float, on_reply: Callable[[int, bool], None]
    ) -> None:
        """Whether keys are there; ``on_reply`` as in ``get``."""
        self._count(b"EXISTS", keys, deadline, on_reply)

    def remove(
        self, keys: Sequence[bytes], deadline: float, on_reply: Callable[[int, bool], None]
    ) -> None:
        """Remove keys; ``on_reply`` as in ``get``, with whether they were there."""
        self._count(b"UNLINK", keys, deadline, on_reply)

    def _count(
        self,
        word: bytes,
        keys: Sequence[bytes],
        deadline: float,
        on_reply: Callable[[int, bool], None],
    ) -> None:
        self._transport.send([b"".join(command(word, key) for key in keys)], deadline)
        for index, reply in enumerate(self._lines(len(keys), deadline)):
            if reply not in {b":0", b":1"}:
                raise RefusedError(reply[1:].decode("utf-8", "replace"))
            on_reply(index, reply == b":1")

    def ping(self, deadline: float) -> None:
        """Raise unless the server answers."""
        self._transport.send([command(b"PING")], deadline)
        for reply in self._lines(1, deadline):
            if reply != b"+PONG":
                raise RefusedError(reply[1:].decode("utf-8", "replace"))

    def abort(self) -> None:
        """From any thread: end the call under way; the connection is of no use afterwards."""
        self.aborted = True
        self._transport.abort()

    def close(self) -> None:
        """Give the socket back."""
        self._transport.close()

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray(count)
        self._transport.fill([memoryview(data)], deadline)
        return bytes(data)

    def _lines(self, count: int, deadline: float) -> list[bytes]:
        """So many one-line replies; nothing else is under way, so reading on does no harm."""
        data = bytearray()
        lines: list[bytes] = []
        while len(lines) < count:
            data += self._transport.some(65536, deadline)
            *whole, rest = data.split(b"\r\n")
            lines += [bytes(line) for line in whole]
            data = bytearray(rest)
            if len(data) > _LINE_LIMIT or len(lines) > count:
                raise ProtocolError("more than was asked for")
        if data:
            raise ProtocolError("more than was asked for")
        return lines
