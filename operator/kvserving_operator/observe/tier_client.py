"""One short connection to one instance of the tier: bounded in time, in bytes and in nesting.

On valkey-py's asyncio connection, because login, TLS and RESP are kept there. What it lacks is the
bound: whatever answers at the other end may be anything, and must cost neither time nor memory.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from valkey import exceptions
from valkey.asyncio import Connection

from kvserving_operator.observe.trust import context_of

TIMEOUT: Final = 2.0
"""Seconds for a connection from its first packet to its last answer."""
CONNECT_TIMEOUT: Final = 1.0
"""Seconds, of these, until it is open."""
_MOST_BYTES: Final = 1 << 20
_MOST_ARRAYS: Final = 64
"""Of one connection. Arrays may hold arrays, and reading them nests as deep."""
_CONTEXTS: Final = 256
_CLOSING_SECONDS: Final = 1.0
_CODE: Final = re.compile(r"[A-Z][A-Z0-9]{1,31}")

# Whatever a reader of anything may raise; a cancellation is none of it.
_TROUBLE: Final = (exceptions.ValkeyError, OSError, ValueError, EOFError, RuntimeError)

Word = str | bytes | int
Reply = bytes | int | list[Any] | None


class Failure(StrEnum):
    """What went wrong, as far as the remedies differ."""

    UNREACHABLE = "Unreachable"
    """No connection: refused, no route, no such name, or nothing came back in time."""
    SILENT = "Silent"
    """A connection, and no answer in time."""
    CERTIFICATE = "Certificate"
    """TLS did not come about: another authority or name, no TLS at all, a certificate of ours."""
    LOGIN = "Login"
    """The instance knows no such user or another password."""
    PERMISSION = "Permission"
    """The user may not use the command."""
    REFUSED = "Refused"
    """Any other error reply: out of memory, loading, read only."""
    NONSENSE = "Nonsense"
    """The other end does not speak RESP, or says more than was asked for."""
    CLOSED = "Closed"
    """The other end hung up: it ends, has too many clients, or speaks TLS and was not asked to."""


class TierError(RuntimeError):
    """A command or a connection that failed. Its text holds no password and no key."""

    def __init__(self, failure: Failure, code: str = "") -> None:
        super().__init__(f"{failure} {code}".rstrip())
        self.failure = failure
        self.code = code
        """The first word of an error reply, such as OOM; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """TLS: whose certificate is accepted."""

    name: str
    """The name that the certificate must be for, whatever address is dialled."""
    authority: str = ""
    """Certificates of the authorities, PEM; empty: those of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an instance is."""

    host: str
    """An IP address or a name."""
    port: int
    trust: Trust | None = None
    """None: no TLS."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Login:
    """Who asks. Without a `repr`, because tracebacks and logs show those."""

    user: str
    """Empty: only a password is sent, which means the user `default`."""
    password: str


class Session:
    """An open connection after its login."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, *command: Word) -> Reply:
        """The reply to one command; raises TierError."""
        [reply] = await self.ask_all(command)
        if isinstance(reply, TierError):
            raise reply
        return reply

    async def ask_all(self, *commands: tuple[Word, ...]) -> list[Reply | TierError]:
        """The replies to commands that are sent in one piece, an error reply in its place.

        Raises TierError where the connection itself fails.
        """
        connection = self._connection
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await self._reply() for _ in commands]
        except _TROUBLE as error:
            raise _failed(error) from None

    async def login(self, login: Login) -> None:
        """Go on as another user; raises TierError. Every user may, whatever its rights are."""
        await self.ask("AUTH", login.user, login.password)

    async def _reply(self) -> Reply | TierError:
        try:
            reply: Reply = await self._connection.read_response(disable_decoding=True)
        except exceptions.ResponseError as error:
            return _failed(error)
        return reply


@asynccontextmanager
async def connected(
    address: Address, login: Login | None, *, timeout: float = TIMEOUT
) -> AsyncIterator[Session]:
    """A session with the instance; raises TierError, also where `timeout` seconds are over.

    The time-out is for all that is done inside the context. Without a login none is sent.
    """
    connection = _Bounded(address, login)
    try:
        async with asyncio.timeout(timeout) as deadline:
            try:
                await connection.connect()  # type: ignore[no-untyped-call]
            except _TROUBLE as error:
                raise (_failed if connection.was_open else _unopened)(error) from None
            yield Session(connection)
    except TimeoutError:
        if not deadline.expired():
            raise
        failure = Failure.SILENT if connection.was_open else Failure.UNREACHABLE
        raise TierError(failure) from None
    finally:
        await connection.disconnect(nowait=True)


class _Bounded(Connection):
    """A connection of valkey-py whose answers have an end."""

    def __init__(self, address: Address, login: Login | None) -> None:
        self.was_open = False
        self._trust = address.trust
        super().__init__(
            host=address.host,
            port=address.port,
            username=login.user if login else None,
            password=login.password if login else None,
            socket_timeout=None,
            lib_name="kvserving-operator",
            lib_version=None,
        )

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"host": self.host, "port": self.port}
        if self._trust is not None:
            arguments["ssl"] = _context(self._trust.authority)
            arguments["server_hostname"] = self._trust.name
            arguments["ssl_shutdown_timeout"] = _CLOSING_SECONDS
        return arguments

    async def _connect(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await super()._connect()  # type: ignore[no-untyped-call]
        self.was_open = True
        self._reader: Any = _Reader(self._reader)


class _Reader:
    """The part of a StreamReader that the parser uses, with an end."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._bytes = 0
        self._arrays = 0

    async def readline(self) -> bytes:
        line = await self._reader.readline()
        self._take(len(line))
        self._arrays += line.startswith(b"*")
        if self._arrays > _MOST_ARRAYS:
            raise TierError(Failure.NONSENSE)
        return line

    async def readexactly(self, count: int) -> bytes:
        self._take(count)
        return await self._reader.readexactly(count)

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    def _take(self, count: int) -> None:
        self._bytes += count
        if count < 0 or self._bytes > _MOST_BYTES:
            raise TierError(Failure.NONSENSE)


@lru_cache(maxsize=_CONTEXTS)
def _context(authority: str) -> ssl.SSLContext:
    """Making one reads all the system's authorities, which takes many times a connection."""
    return context_of(authority)


def _unopened(error: Exception) -> TierError:
    """Why there is no connection. The library wraps what it was without naming it as the cause."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, ssl.SSLError):
        below = below.__cause__ or below.__context__
    return TierError(Failure.UNREACHABLE if below is None else Failure.CERTIFICATE)


# The first that fits. Some errors are kinds of others there.
_KINDS: Final = (
    (exceptions.AuthenticationError, Failure.LOGIN),
    (exceptions.NoPermissionError, Failure.PERMISSION),
    (exceptions.BusyLoadingError, Failure.REFUSED),
    (exceptions.ResponseError, Failure.REFUSED),
    ((exceptions.ConnectionError, OSError, EOFError), Failure.CLOSED),
    (Exception, Failure.NONSENSE),
)


def _failed(error: Exception) -> TierError:
    """What an exception of valkey-py, or of what is below it, comes to."""
    if isinstance(error, TierError):
        return error
    failure = next(failure for kind, failure in _KINDS if isinstance(error, kind))
    return TierError(failure, _code(error) if failure is Failure.REFUSED else "")


def _code(error: Exception) -> str:
    """The code of an error reply. The library takes off those that it has a class for."""
    known: dict[type[Exception], str] = {
        exceptions.BusyLoadingError: "LOADING",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.ReadOnlyError: "READONLY",
    }
    word = known.get(type(error)) or str(error).partition(" ")[0]
    return word if _CODE.fullmatch(word) else "ERR"
