"""HTTP to whoever may be at the other end: bounded in time, connections and bytes.

No redirect is followed, nothing is unpacked, no cookie is kept, and of an answer other than 200 no
body is read.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

NO_ANSWER: Final = (aiohttp.ClientError, TimeoutError, OSError)
"""What `Bounded.ask` raises where nobody answers."""


class TooLongError(Exception):
    """An answer is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes = b""
    """Empty unless the status is 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one client."""

    connect: float
    """Seconds until there is a connection."""
    connections: int
    """At once."""
    of_one_host: int = 0
    """The same to one host and port; 0: as many as there may be."""
    most_bytes: int
    """Of one answer."""
    reuse: bool = True
    """Whether a connection is used for several questions."""


class Bounded:
    """A client; an async context, because it holds connections."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        bounds = self._bounds
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=bounds.connections,
                limit_per_host=bounds.of_one_host,
                force_close=not bounds.reuse,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        url: str,
        *,
        deadline: float,
        headers: Mapping[str, str],
        query: Mapping[str, str] | None = None,
        put: bytes | None = None,
        tls: ssl.SSLContext | bool = True,
    ) -> Answer:
        """GET, or PUT where there is something to `put`.

        `deadline`: seconds for the answer; the wait for a connection counts. Raises one of
        `NO_ANSWER`, or TooLongError.
        """
        if self._session is None:
            raise RuntimeError("a client is used outside of its context")
        bounds = self._bounds
        async with self._session.request(
            "GET" if put is None else "PUT",
            url,
            params=query,
            data=put,
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=deadline, sock_connect=bounds.connect),
            ssl=tls,
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                return Answer(response.status)
            return Answer(200, await self._body(response))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        # One read gives what has arrived, and an answer of several packets arrives in pieces.
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._bounds.most_bytes:
                raise TooLongError
        return bytes(body)
