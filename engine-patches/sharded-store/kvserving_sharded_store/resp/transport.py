"""Bytes over one connection, every call with a deadline; plain TCP and TLS.

Deadlines are monotonic seconds. A plain socket stays blocking and the kernel keeps the time
(SO_RCVTIMEO, SO_SNDTIMEO): a Python-level timeout would poll before each read and lose the one call
per value. OpenSSL reads records, so a TLS connection polls.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Final, Protocol

from kvserving_sharded_store.resp.errors import DeadlineError, InstanceError

_MOST_BUFFERS: Final = 512
"""Buffers handed to the kernel in one call; Linux takes 1024."""


_QUIET_SECONDS: Final = 2.0
"""A call that moves next to nothing for so long is given up, whatever its deadline: a host that is
gone says nothing, and a store has half a minute, in which nobody else would be served."""

_TRICKLE_BYTES: Final = 64 * 1024
"""Next to nothing: no value gets through at that pace, but its connection is taken all the same."""

_LOOK_SECONDS: Final = 0.5
"""A call is interrupted so often, to see whether anything has moved in it."""


class Transport(Protocol):
    """What the protocol layer needs of a connection."""

    def fill(self, buffers: Sequence[memoryview], deadline: float) -> None:
        """Read until every buffer is full, not a byte more."""

    def some(self, most: int, deadline: float) -> bytes:
        """Read at least one and at most so many bytes."""

    def send(self, buffers: Sequence[bytes | memoryview], deadline: float) -> None:
        """Write all of every buffer."""

    def abort(self) -> None:
        """End calls under way in other threads; the connection is of no use afterwards."""

    def close(self) -> None:
        """Give the socket back."""


def remaining(deadline: float) -> float:
    """Seconds left.

    Raises:
        DeadlineError: When none are.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineError("no time left")
    return left


class _Patience:
    """How long a transfer may go on: until its deadline, and while it gets on.

    Quiet is what was seen: from one look to the next half a second at most, however long it took.
    A process that had no core, or a thread without the interpreter, saw nothing.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._moved = 0
        self._quiet = 0.0
        self._looked = time.monotonic()

    def seconds(self, most: float = _LOOK_SECONDS) -> float:
        """For the next call.

        Raises:
            DeadlineError: When there are none.
        """
        self._look()
        if self._quiet >= _QUIET_SECONDS:
            raise DeadlineError("next to nothing moves")
        return min(remaining(self._deadline), most)

    def moved(self, count: int) -> None:
        """A call moved so many bytes."""
        self._moved += count

    def failed(self, error: OSError) -> None:
        """A call failed.

        Raises:
            InstanceError: Unless it is worth another one.
        """
        meant = translated(error)
        now = self._look()
        is_over = now >= self._deadline or self._quiet >= _QUIET_SECONDS
        if is_over or not isinstance(meant, DeadlineError):
            raise meant from error

    def _look(self) -> float:
        """Take into account what moved since the last look; the time."""
        now = time.monotonic()
        if self._moved >= _TRICKLE_BYTES:
            self._moved, self._quiet = 0, 0.0
        else:
            self._quiet += min(now - self._looked, _LOOK_SECONDS)
        self._looked = now
        return now


def _timeval(seconds: float) -> bytes:
    # A zero timeval would mean "no timeout".
    micro = max(1, int(seconds * 1e6))
    return struct.pack("@ll", micro // 1_000_000, micro % 1_000_000)


def _advance(buffers: Sequence[bytes | memoryview], done: int) -> list[memoryview]:
    """What is left of the buffers after so many bytes."""
    left: list[memoryview] = []
    for buffer in buffers:
        if done >= len(buffer):
            done -= len(buffer)
            continue
        left.append(memoryview(buffer)[done:])
        done = 0
    return left


class Plain:
    """A TCP connection."""

    def __init__(self, raw: socket.socket, low_water: int = 0) -> None:
        raw.settimeout(None)
        self._socket = raw
        self._low_water = low_water

    def fill(self, buffers: Sequence[memoryview], deadline: float) -> None:
        """See ``Transport``: one read, two with a low-water mark, unless the deadline cuts it."""
        left: Sequence[memoryview] = buffers
        low = self._low_water
        if low and len(buffers[0]) >= 2 * low:
            # While this read lasts, so many bytes are still to come behind it: the mark is always
            # reached. (Should the window close before, the kernel wakes the reader all the same.)
            cut = len(buffers[0]) - low
            self._wake_at(low)
            self._fill([buffers[0][:cut]], deadline)
            self._wake_at(1)
            left = [buffers[0][cut:], *buffers[1:]]
        self._fill(left, deadline)

    def _fill(self, buffers: Sequence[memoryview], deadline: float) -> None:
        left, patience = buffers, _Patience(deadline)
        while left:
            self._arm(socket.SO_RCVTIMEO, patience)
            try:
                count, *_ = self._socket.recvmsg_into(left[:_MOST_BUFFERS], 0, socket.MSG_WAITALL)
            except OSError as error:
                patience.failed(error)
                continue
            if count == 0:
                raise InstanceError("closed by the other side")
            patience.moved(count)
            left = _advance(left, count)

    def some(self, most: int, deadline: float) -> bytes:
        """See ``Transport``."""
        patience = _Patience(deadline)
        while True:
            self._arm(socket.SO_RCVTIMEO, patience)
            try:
                data = self._socket.recv(most)
            except OSError as error:
                patience.failed(error)
                continue
            if not data:
                raise InstanceError("closed by the other side")
            return data

    def send(self, buffers: Sequence[bytes | memoryview], deadline: float) -> None:
        """See ``Transport``: one system call for up to 512 buffers."""
        left: Sequence[bytes | memoryview] = buffers
        patience = _Patience(deadline)
        while left:
            self._arm(socket.SO_SNDTIMEO, patience)
            try:
                count = self._socket.sendmsg(left[:_MOST_BUFFERS], (), socket.MSG_NOSIGNAL)
            except OSError as error:
                patience.failed(error)
                continue
            patience.moved(count)
            left = _advance(left, count)

    def abort(self) -> None:
        """See ``Transport``."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # not connected any more: nobody waits on it either

    def close(self) -> None:
        """See ``Transport``; for the server too, even where a fork has the socket open yet."""
        self.abort()
        self._socket.close()

    def _wake_at(self, count: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _arm(self, option: int, patience: _Patience) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval(patience.seconds()))


class Tls:
    """A TLS connection."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._socket = wrapped

    def fill(self, buffers: Sequence[memoryview], deadline: float) -> None:
        """See ``Transport``."""
        patience = _Patience(deadline)
        for buffer in buffers:
            left = buffer
            while len(left):
                left = left[self._read(left, patience) :]

    def some(self, most: int, deadline: float) -> bytes:
        """See ``Transport``."""
        data = bytearray(most)
        return bytes(data[: self._read(memoryview(data), _Patience(deadline))])

    def send(self, buffers: Sequence[bytes | memoryview], deadline: float) -> None:
        """See ``Transport``."""
        patience = _Patience(deadline)
        for buffer in buffers:
            left = memoryview(buffer)
            while left:
                # Each call ends with a record at the latest, so it need not be interrupted.
                self._socket.settimeout(patience.seconds(_QUIET_SECONDS))
                try:
                    count = self._socket.send(left)
                except OSError as error:
                    raise translated(error) from error
                patience.moved(count)
                left = left[count:]

    def abort(self) -> None:
        """See ``Transport``."""
        try:
            # The socket below: a TLS close would wait for the other side.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """See ``Transport``, and ``Plain.close``."""
        self.abort()
        self._socket.close()

    def _read(self, into: memoryview, patience: _Patience) -> int:
        self._socket.settimeout(patience.seconds(_QUIET_SECONDS))
        try:
            count = self._socket.recv_into(into)
        except OSError as error:
            raise translated(error) from error
        if count == 0:
            raise InstanceError("closed by the other side")
        patience.moved(count)
        return count


def translated(error: OSError) -> InstanceError:
    """What an error of a socket means."""
    # A kernel timeout of a blocking socket shows as EAGAIN.
    if isinstance(error, BlockingIOError | TimeoutError):
        return DeadlineError("no answer in time")
    return InstanceError(f"{type(error).__name__}: {error.strerror or error}")
