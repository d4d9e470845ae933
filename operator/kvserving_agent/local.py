"""Questions to an HTTP API of this pod, each bounded in time and in bytes.

Every failure is a LocalError with one of the Faults; nothing else leaves this module. It holds no
state and decides nothing: watch.py does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import aiohttp

from kvserving_agent.facts import Fault

# vLLM answers these in milliseconds; seconds mean that its event loop is busy.
TIMEOUT_SECONDS = 5.0
MAX_JSON_BYTES = 256 * 1024

_PIECE_BYTES = 64 * 1024
_NONE: Mapping[str, str] = MappingProxyType({})


class LocalError(Exception):
    """Nobody answered as they should; `fault` is the kind, the text the particulars."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault


class Local:
    """One API at `base_url`. `session` is the caller's to close."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._base_url = base_url

    async def json(self, path: str) -> dict[str, object]:
        """The JSON object that GET answers with."""
        async with self.get(path) as response:
            return await _object(response)

    async def put(
        self, path: str, body: Mapping[str, object], *, if_match: str
    ) -> tuple[int, dict[str, object]]:
        """The status and the JSON object that PUT answers with, whatever the status."""
        async with self._ask("PUT", path, json.dumps(body).encode(), {"If-Match": if_match}) as got:
            return got.status, await _object(got)

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of GET, once its status is known to be 200."""
        async with self._ask("GET", path) as response:
            if response.status != 200:
                raise LocalError(Fault.STATUS, f"{path} answered {response.status}")
            yield response

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = _NONE
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(
                method,
                self._base_url + path,
                data=body,
                allow_redirects=False,
                headers={"Accept-Encoding": "identity", **headers},
            ) as response:
                yield response
        except TimeoutError:
            raise LocalError(Fault.TIMEOUT, f"{path} took {TIMEOUT_SECONDS:g} s") from None
        except aiohttp.ClientConnectorError as error:
            # Refused: nobody is there. Anything else, such as no descriptor left, is our trouble.
            refused = isinstance(error.os_error, ConnectionRefusedError)
            fault = Fault.REFUSED if refused else Fault.NO_CONNECTION
            raise LocalError(fault, f"{path}: {error.strerror}") from None
        except (aiohttp.ClientError, OSError) as error:
            # The connection broke off, or what came is not HTTP.
            raise LocalError(Fault.MALFORMED, f"{path}: {type(error).__name__}") from None


def new_session() -> aiohttp.ClientSession:
    """A session for Local: one connection kept for each loop, no proxies, no unpacking.

    A compressed answer (nobody asked for it) stays as it is and fails as malformed, so that no
    bomb can unfold here.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=6),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


async def pieces(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """The body in pieces; TOO_LARGE as soon as it exceeds `limit` bytes."""
    length = 0
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        length += len(piece)
        if length > limit:
            raise LocalError(Fault.TOO_LARGE, f"{response.url.path} exceeds {limit} bytes")
        yield piece


async def _object(response: aiohttp.ClientResponse) -> dict[str, object]:
    content = b"".join([piece async for piece in pieces(response, MAX_JSON_BYTES)])
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise LocalError(Fault.MALFORMED, f"{response.url.path} is no JSON object")
    return parsed
