"""Requests to the API server: bounded, retried, timed and, when they write, fenced.

kubernetes.aio supplies connection pool, TLS and token refresh; this module adds the declared
permissions, a bound on requests in flight, retry of transient failures, and the fence that every
single write attempt must pass. It knows nothing of objects; `client.py` gives it its verbs.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client.rest import RESTClientObject

from kvserving_operator.api import meta
from kvserving_operator.kube import errors, permissions
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.encoding import encode
from kvserving_operator.kube.paths import Resource
from kvserving_operator.kube.permissions import Verb
from kvserving_operator.plan.model import Manifest

WRITE_TIMEOUT = 5.0
"""Seconds one write attempt may last. The lease arithmetic depends on it: runtime/leader.py."""
READ_TIMEOUT = 20.0
_ATTEMPTS = 4
_BACKOFF = 0.2
_RETRY_AFTER_LIMIT = 5.0

APPLY = "application/apply-patch+yaml"
# Encoded by us: of a body whose type is just APPLY the library makes JSON that YAML cannot read.
_ENCODED = f"{APPLY}; charset=utf-8"
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
        self._rest = RESTClientObject(credentials.configuration)
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
        await self._rest.close()

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
            "Content-Type": _ENCODED if request.content_type == APPLY else request.content_type,
            "User-Agent": self._user_agent,
        }
        authorization = await self._credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    async def _exchange(self, request: Request, headers: dict[str, str]) -> tuple[int, Any, float]:
        """One HTTP exchange: status, decoded body, Retry-After in seconds (0 when absent)."""
        timeout = aiohttp.ClientTimeout(
            total=self._write_timeout if request.write else READ_TIMEOUT
        )
        try:
            response = await self._rest.request(  # type: ignore[no-untyped-call]
                request.method,
                self._credentials.configuration.host + request.url,
                headers=headers,
                body=encode(request.body) if request.content_type == APPLY else request.body,
                _request_timeout=timeout,
            )
            raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.UnreachableError(call=str(request), cause=error) from error
        return int(response.status), _decode(raw), _seconds(response.getheader("Retry-After"))

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


def _decode(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except ValueError:
        pass
    try:
        # orjson ends at 1,024 levels, the API server stores 10,000: one object more nested than
        # that would make every LIST look like text, which is to say empty.
        return json.loads(raw)
    except ValueError:
        # Proxies and an API server that is starting answer in plain text.
        return raw[:500].decode("utf-8", "replace")


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0.0))
    except ValueError:
        # The other legal form, an HTTP date, is not worth a parser: our own backoff applies.
        return 0.0
