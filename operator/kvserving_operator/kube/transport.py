"""Requests to the API server: bounded, retried, timed and, when they write, fenced.

`connection.py` supplies the bytes; this module adds the declared permissions, a bound on requests
in flight, retry of transient failures, and the fence that every single write attempt must pass. It
knows nothing of objects; `client.py` gives it its verbs.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlencode

import aiohttp

from kvserving_operator.api import meta
from kvserving_operator.kube import errors, permissions
from kvserving_operator.kube.connection import Answering, Connection, decode, lines
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.paths import Resource
from kvserving_operator.kube.permissions import Verb
from kvserving_operator.plan.model import Manifest

WRITE_TIMEOUT = 5.0
"""Seconds one write attempt may last. The lease arithmetic depends on it: runtime/leader.py."""
READ_TIMEOUT = 20.0
_ATTEMPTS = 4
_BACKOFF = 0.2
_RETRY_AFTER_LIMIT = 5.0
_OPENING = 10.0
"""Seconds in which a stream must begin."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One finished request attempt, for metrics. `status` is 0 when there was no answer."""

    verb: Verb
    resource: Resource
    subresource: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to the API server."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    verb: Verb
    resource: Resource
    namespace: str | None
    name: str | None = None
    subresource: str = ""
    query: Mapping[str, str] | None = None
    body: Any = None
    content_type: str = JSON

    @property
    def write(self) -> bool:
        """True when the request may change something."""
        return self.method != "GET"

    @property
    def url(self) -> str:
        """Path and query."""
        path = self.resource.path(self.namespace, self.name, self.subresource)
        return f"{path}?{urlencode(self.query)}" if self.query else path

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.path(self.namespace, self.name, self.subresource)}"


def no_fence() -> None:
    """The fence of a client that may always write."""


class Transport:
    """Sends requests to one API server; belongs to one event loop.

    `fence` is called immediately before every write attempt, after the wait for a free slot, and
    raises FencedError when the write must not be sent. `observe` is told of every attempt.
    `permitted` raises when a call is not one of those that the operator declares; a program that
    runs with a person's own rights passes one that raises never.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        fence: Callable[[], None] = no_fence,
        observe: Callable[[Call], None] | None = None,
        concurrency: int = 10,
        attempts: int = _ATTEMPTS,
        write_timeout: float = WRITE_TIMEOUT,
        user_agent: str = meta.FIELD_MANAGER,
        permitted: Callable[[Verb, Resource, str], None] = permissions.require,
    ) -> None:
        self._credentials = credentials
        self._connection = Connection(credentials)
        self._fence = fence
        self._observe = observe
        self._slots = asyncio.Semaphore(concurrency)
        self._attempts = attempts
        self._write_timeout = write_timeout
        self._user_agent = user_agent
        self._permitted = permitted

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection pool."""
        await self._connection.close()

    async def send(self, request: Request) -> Manifest:
        """Send with retries; every attempt of a write passes the fence anew."""
        self._permitted(request.verb, request.resource, request.subresource)
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                return await self._attempt(request)
            except errors.ApiError as error:
                delay = self._delay(attempt, error)
                if last or delay is None:
                    raise
            except errors.UnreachableError:
                if last:
                    raise
                delay = self._jittered(attempt)
            await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _delay(self, attempt: int, error: errors.ApiError) -> float | None:
        """Seconds until the next attempt, or None when another attempt is pointless here."""
        if error.status == 401 and attempt == 1:
            return 0.0
        if not error.retryable or error.retry_after > _RETRY_AFTER_LIMIT:
            return None
        return max(error.retry_after, self._jittered(attempt))

    @staticmethod
    def _jittered(attempt: int) -> float:
        return float(_BACKOFF * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311

    async def _attempt(self, request: Request) -> Manifest:
        loop = asyncio.get_running_loop()
        async with self._slots:
            headers = await self._headers(request)
            if request.write:
                self._fence()
            started = loop.time()
            status = 0
            try:
                status, payload, retry_after = await self._exchange(request, headers)
            finally:
                self._tell(request, status, loop.time() - started)
        if status < 400:
            if isinstance(payload, dict):
                return payload
            # Read as an empty answer it would be "there are none".
            cause = ValueError("the answer is no JSON object")
            raise errors.UnreachableError(call=str(request), cause=cause)
        if status == 401:
            await self._credentials.reload()
        raise errors.from_response(
            status=status,
            body=payload,
            call=str(request),
            retry_after=retry_after,
            secret=request.resource.kind == "Secret",
        )

    async def _headers(self, request: Request) -> dict[str, str]:
        headers = {
            "Accept": JSON,
            "Content-Type": request.content_type,
            "User-Agent": self._user_agent,
        }
        authorization = await self._credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    async def _exchange(self, request: Request, headers: dict[str, str]) -> tuple[int, Any, float]:
        """One HTTP exchange: status, decoded body, Retry-After in seconds (0 when absent)."""
        seconds = self._write_timeout if request.write else READ_TIMEOUT
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._begin(request, headers, timeout) as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.UnreachableError(call=str(request), cause=error) from error
        return response.status, decode(raw), _seconds(response.headers.get("Retry-After"))

    def _begin(
        self, request: Request, headers: dict[str, str], timeout: aiohttp.ClientTimeout
    ) -> Answering:
        return self._connection.open(
            request.method, request.url, headers=headers, body=request.body, timeout=timeout
        )

    @asynccontextmanager
    async def stream(
        self, request: Request, *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an answer that never ends, once; its lines come as they arrive.

        It takes no slot and is not retried. Lines end with UnreachableError when nothing came for
        ``silence`` seconds or the connection broke, and quietly when the server closed it.
        """
        self._permitted(request.verb, request.resource, request.subresource)
        headers = await self._headers(request)
        loop = asyncio.get_running_loop()
        started, status = loop.time(), 0
        timeout = aiohttp.ClientTimeout(total=None, sock_read=silence)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_OPENING):
                    opening = self._begin(request, headers, timeout)
                    response = await stack.enter_async_context(opening)
                    status = response.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise errors.UnreachableError(call=str(request), cause=error) from error
            finally:
                self._tell(request, status, loop.time() - started)
            if status != 200:
                await self._refused(request, response)
            yield self._lines(request, response)

    @staticmethod
    async def _lines(request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for line in lines(response):
                yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.UnreachableError(call=str(request), cause=error) from error

    async def _refused(self, request: Request, response: aiohttp.ClientResponse) -> None:
        try:
            body = decode(await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.UnreachableError(call=str(request), cause=error) from error
        if response.status == 401:
            await self._credentials.reload()
        raise errors.from_response(status=response.status, body=body, call=str(request))

    def _tell(self, request: Request, status: int, seconds: float) -> None:
        if self._observe is not None:
            self._observe(
                Call(
                    verb=request.verb,
                    resource=request.resource,
                    subresource=request.subresource,
                    status=status,
                    seconds=seconds,
                )
            )


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0.0))
    except ValueError:
        # The other legal form, an HTTP date, is not worth a parser: our own backoff applies.
        return 0.0
