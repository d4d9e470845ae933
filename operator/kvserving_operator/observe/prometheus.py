"""Asks a Prometheus for the facts of all engines of an object, bounded in time and in bytes.

Whoever writes a KVServing names the server, so its answers are a stranger's (`observe.bounded`),
and what it says is told to nobody. A server that takes time and gives nothing is left alone for a
while by all objects that ask it: together they ask it once an interval, not once each.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

import aiohttp

from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe import promql
from kvserving_operator.observe.bounded import Bounded, Bounds, TooLongError
from kvserving_operator.observe.scraped import facts_of
from kvserving_operator.observe.silences import Silences
from kvserving_operator.observe.trust import context_of

DEADLINE: Final = 5.0
"""Seconds for all answers about an object, which are asked for at once."""
CONNECT_TIMEOUT: Final = 2.0
REMEMBERED: Final = 10.0
"""Seconds for which a reading is good."""
SILENT: Final = 60.0
"""Seconds for which a reading that failed counts, for those who take what is remembered."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one answer: some 150 pods that are scraped every 15 s."""
_CONNECTIONS: Final = 16
"""At once: they bound what answers take of memory. The wait for one counts as silence."""
_OF_ONE_SERVER: Final = 6
_MOST_READINGS: Final = 2_000


class Fault(StrEnum):
    """Why nothing could be read."""

    NO_CREDENTIALS = "needs a Secret or a key of it that is not there"
    UNREACHABLE = "cannot be reached"
    SLOW = "does not answer in time"
    CERTIFICATE = "shows a certificate that is not accepted"
    UNAUTHORISED = "does not accept the credentials"
    STATUS = "refuses the queries"
    TOO_LARGE = "answers more than 8 MiB"
    MALFORMED = "answers what is no Prometheus' answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A Prometheus server and how to talk to it."""

    url: str
    """Without the path of the API."""
    token: str | None = field(default=None, repr=False)
    """Bearer token."""
    basic: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    authority: str | None = None
    """PEM of the authorities that its certificate is checked by; None: those of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a server knows of some pods."""

    facts: Mapping[str, EngineFacts | None] = field(default_factory=lambda: MappingProxyType({}))
    """By pod; None: nothing current was scraped of it."""
    fault: Fault | None = None
    """Why nothing is known at all."""


Connect = Callable[[], Awaitable[Server | None]]
"""Gives the server with its credentials; None where one of them is not there."""


@dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    target: object
    uids: Mapping[str, str]
    reading: Reading


class _FaultError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class Prometheus:
    """Asks servers; an async context, because it holds connections."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._silent = Silences[Fault](clock, probe=DEADLINE)
        self._http = Bounded(
            Bounds(
                connect=CONNECT_TIMEOUT,
                connections=_CONNECTIONS,
                of_one_host=_OF_ONE_SERVER,
                most_bytes=MOST_BYTES,
            )
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    async def read(
        self,
        connect: Connect,
        *,
        target: object,
        owner: str,
        namespace: str,
        pods: Mapping[str, str],
        anew: bool = False,
    ) -> Reading:
        """What the server knows of pods.

        Args:
            connect: Tells whom to ask, if it is necessary to ask.
            target: What that follows from; a reading of another one does not count.
            owner: Uid of the object that the pods belong to; its reading is remembered.
            namespace: Of the pods.
            pods: Uid by name.
            anew: Nothing that is remembered counts, but for silence.
        """
        if not pods:
            return Reading()
        now = self._clock()
        known = self._kept.pop(owner, None)
        if known is not None and (known.target != target or now > known.until):
            known = None
        if anew or known is None or not pods.items() <= known.uids.items():
            # Of one object one part is asked about after the other: the answer is to be for both.
            asked = {**({} if known is None else known.uids), **pods}
            known = await self._kept_anew(connect, target, owner, namespace, asked)
        self._kept[owner] = known
        while len(self._kept) > _MOST_READINGS:
            del self._kept[next(iter(self._kept))]
        facts = known.reading.facts
        return replace(known.reading, facts={name: facts[name] for name in pods if name in facts})

    async def _kept_anew(
        self, connect: Connect, target: object, owner: str, namespace: str, pods: Mapping[str, str]
    ) -> _Kept:
        server, reading, kept = await connect(), Reading(fault=Fault.NO_CREDENTIALS), SILENT
        if server is not None:
            silent = self._silence(server, owner)
            if silent is not None:
                return _Kept(self._clock() + REMEMBERED, target, pods, Reading(fault=silent))
            reading = await self._ask(server, owner, namespace, pods)
            kept = REMEMBERED if reading.fault is None else SILENT
        return _Kept(self._clock() + kept, target, pods, reading)

    def _silence(self, server: Server, owner: str) -> Fault | None:
        """Why the server is left alone now; None: it may be asked."""
        silences = (self._silent.of(whom) for whom in _whom(server, owner))
        return next((fault for fault in silences if fault is not None), None)

    async def _ask(
        self, server: Server, owner: str, namespace: str, pods: Mapping[str, str]
    ) -> Reading:
        questions = ("time()", *promql.queries(namespace, pods))
        began, wall = self._clock(), time.perf_counter()
        asked = [asyncio.ensure_future(self._query(server, each)) for each in questions]
        fault: Fault | None = None
        try:
            async with asyncio.timeout(DEADLINE):
                told, *bodies = await asyncio.gather(*asked)
            # Of the time since it was told nothing is lost: no age is understated.
            now = promql.parse_time(told) + self._clock() - began
            answers = [await asyncio.to_thread(promql.parse_matrix, body) for body in bodies]
        except TimeoutError:
            fault = Fault.SLOW
        except promql.MalformedError:
            fault = Fault.MALFORMED
        except _FaultError as error:
            fault = error.fault
        finally:
            for task in asked:
                task.cancel()
        self._remember(server, owner, fault, asked[0], seconds=time.perf_counter() - wall)
        if fault is not None:
            return Reading(fault=fault)
        return Reading(facts=facts_of(answers, namespace=namespace, pods=pods, now=now))

    def _remember(
        self,
        server: Server,
        owner: str,
        fault: Fault | None,
        clock: "asyncio.Future[bytes]",
        *,
        seconds: float,
    ) -> None:
        """Remember whose silence it is.

        That of the server as such, of it to these credentials, or to one object's questions, where
        it answers what time it is and not them.
        """
        answered = clock.done() and not clock.cancelled() and clock.exception() is None
        url, known, one = _whom(server, owner)
        whole = fault if not answered else None
        self._silent.went(url, whole if fault is Fault.UNREACHABLE else None, seconds=seconds)
        self._silent.went(known, None if fault is Fault.UNREACHABLE else whole, seconds=seconds)
        self._silent.went(one, fault if answered else None, seconds=seconds)

    async def _query(self, server: Server, query: str) -> bytes:
        try:
            answer = await self._http.ask(
                f"{server.url.rstrip('/')}/api/v1/query",
                deadline=DEADLINE,
                query={"query": query},
                headers=_headers(server),
                tls=self._context(server),
            )
        except TooLongError:
            raise _FaultError(Fault.TOO_LARGE) from None
        except aiohttp.ConnectionTimeoutError:
            raise _FaultError(Fault.UNREACHABLE) from None
        except TimeoutError:
            raise _FaultError(Fault.SLOW) from None
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError):
            raise _FaultError(Fault.CERTIFICATE) from None
        except (aiohttp.ClientError, OSError):
            raise _FaultError(Fault.UNREACHABLE) from None
        if answer.status in {401, 403}:
            raise _FaultError(Fault.UNAUTHORISED)
        if answer.status != 200:
            raise _FaultError(Fault.STATUS)
        return answer.body

    def _context(self, server: Server) -> ssl.SSLContext | bool:
        if server.authority is None:
            return True
        context = self._contexts.get(server.authority)
        if context is None:
            if len(self._contexts) > _CONNECTIONS:
                self._contexts.clear()
            try:
                context = context_of(server.authority)
            except ssl.SSLError:
                raise _FaultError(Fault.CERTIFICATE) from None
            self._contexts[server.authority] = context
        return context


def _headers(server: Server) -> dict[str, str]:
    headers = {}
    if server.basic is not None:
        pair = base64.b64encode(":".join(server.basic).encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    elif server.token is not None:
        headers["Authorization"] = f"Bearer {server.token}"
    return headers


def _whom(server: Server, owner: str) -> tuple[Hashable, Hashable, Hashable]:
    """Those whose silence is remembered.

    Credentials have their own: a proxy may hang for some, which silences it for nobody else.
    """
    return server.url, server, (server, owner)
