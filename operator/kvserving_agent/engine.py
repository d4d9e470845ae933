"""The questions asked of the engine's local HTTP API, each bounded in time and in bytes.

Every failure is an EngineError with one of the Faults; nothing else leaves this module. It holds
no state and decides nothing: watch.py does.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from kvserving_agent.exposition import LineTooLongError, Scanner
from kvserving_agent.facts import Fault

# vLLM answers these in milliseconds; seconds mean that its event loop is busy.
TIMEOUT_SECONDS = 5.0
# A page of vLLM with LMCache is below 0.3 MB. A larger answer than these is an error, not data.
MAX_PAGE_BYTES = 10_000_000
MAX_JSON_BYTES = 256 * 1024
# Of a model name or a version, which end in facts and in logs.
MAX_TEXT = 256

_PIECE_BYTES = 64 * 1024


class EngineError(Exception):
    """The engine did not answer as it should; `fault` is the kind, the text the particulars."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault


@dataclass(frozen=True)
class Page:
    """The wanted series of one metrics page, its length, and the seconds it took to come."""

    series: dict[str, list[float | None]]
    bytes: int
    seconds: float


class Engine:
    """The engine's HTTP API as the agent uses it. `session` is the caller's to close."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        wanted: Iterable[str],
        *,
        version_path: str = "/version",
    ) -> None:
        self._session = session
        self._base_url = base_url
        self._version_path = version_path
        self._wanted = frozenset(wanted)

    async def health(self) -> None:
        """Return when /health answers 200."""
        async with self._get("/health"):
            return

    async def models(self) -> tuple[str, ...]:
        """The names that /v1/models lists."""
        content = await self._json("/v1/models")
        data = content.get("data")
        if not isinstance(data, list):
            raise EngineError(Fault.MALFORMED, "/v1/models has no list of data")
        names = (entry.get("id") for entry in data if isinstance(entry, dict))
        return tuple(name[:MAX_TEXT] for name in names if isinstance(name, str) and name)

    async def version(self) -> str:
        """The version that the engine states."""
        version = (await self._json(self._version_path)).get("version")
        if not isinstance(version, str) or not version.isprintable() or not version:
            raise EngineError(Fault.MALFORMED, f"{self._version_path} has no version")
        return version[:MAX_TEXT]

    async def metrics(self) -> Page:
        """The wanted series of /metrics, scanned as they arrive."""
        scanner = Scanner(self._wanted)
        started = time.monotonic()
        length = 0
        async with self._get("/metrics") as response:
            try:
                async for piece in _pieces(response, MAX_PAGE_BYTES):
                    length += len(piece)
                    scanner.feed(piece)
                scanner.close()
            except LineTooLongError as error:
                raise EngineError(Fault.MALFORMED, str(error)) from None
        if not scanner.values:
            raise EngineError(Fault.MALFORMED, "/metrics shows none of the expected series")
        return Page(scanner.values, length, time.monotonic() - started)

    async def _json(self, path: str) -> dict[str, object]:
        async with self._get(path) as response:
            content = b"".join([piece async for piece in _pieces(response, MAX_JSON_BYTES)])
        try:
            parsed = json.loads(content)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise EngineError(Fault.MALFORMED, f"{path} is no JSON object")
        return parsed

    @asynccontextmanager
    async def _get(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.get(
                self._base_url + path,
                allow_redirects=False,
                headers={"Accept-Encoding": "identity"},
            ) as response:
                if response.status != 200:
                    raise EngineError(Fault.STATUS, f"{path} answered {response.status}")
                yield response
        except TimeoutError:
            raise EngineError(Fault.TIMEOUT, f"{path} took {TIMEOUT_SECONDS:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise EngineError(Fault.REFUSED, f"{path}: {error.strerror}") from None
        except (aiohttp.ClientError, OSError) as error:
            # The connection broke off, or what came is not HTTP.
            raise EngineError(Fault.MALFORMED, f"{path}: {type(error).__name__}") from None


def new_session() -> aiohttp.ClientSession:
    """A session for Engine: one connection kept for each loop, no proxies, no unpacking.

    A compressed answer (nobody asked for it) stays as it is and fails as malformed, so that no
    bomb can unfold here.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=4),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


async def _pieces(response: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """The body in pieces; TOO_LARGE as soon as it exceeds `limit` bytes."""
    length = 0
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        length += len(piece)
        if length > limit:
            raise EngineError(Fault.TOO_LARGE, f"{response.url.path} exceeds {limit} bytes")
        yield piece
