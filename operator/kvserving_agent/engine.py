"""The questions asked of the engine's local HTTP API, each bounded in time and in bytes.

Every failure is a LocalError with one of the Faults; nothing else leaves this module. It holds
no state and decides nothing: watch.py does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp

from kvserving_agent.exposition import LineTooLongError, Scanner
from kvserving_agent.facts import Fault
from kvserving_agent.local import Local, LocalError, pieces

# A page of vLLM with LMCache is below 0.3 MB. A larger answer is an error, not data.
MAX_PAGE_BYTES = 10_000_000
# Of a model name or a version, which end in facts and in logs.
MAX_TEXT = 256


@dataclass(frozen=True)
class Page:
    """The wanted series of one metrics page, its length, and the seconds it took to come."""

    series: dict[str, list[float | None]]
    buckets: dict[str, dict[str, list[float | None]]]
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
        histograms: Iterable[str] = (),
        version_path: str = "/version",
    ) -> None:
        self._local = Local(session, base_url)
        self._version_path = version_path
        self._wanted = frozenset(wanted)
        self._histograms = frozenset(histograms)

    async def health(self) -> None:
        """Return when /health answers 200."""
        async with self._local.get("/health"):
            return

    async def models(self) -> tuple[str, ...]:
        """The names that /v1/models lists."""
        content = await self._local.json("/v1/models")
        data = content.get("data")
        if not isinstance(data, list):
            raise LocalError(Fault.MALFORMED, "/v1/models has no list of data")
        names = (entry.get("id") for entry in data if isinstance(entry, dict))
        return tuple(name[:MAX_TEXT] for name in names if isinstance(name, str) and name)

    async def version(self) -> str:
        """The version that the engine states."""
        version = (await self._local.json(self._version_path)).get("version")
        if not isinstance(version, str) or not version.isprintable() or not version:
            raise LocalError(Fault.MALFORMED, f"{self._version_path} has no version")
        return version[:MAX_TEXT]

    async def metrics(self) -> Page:
        """The wanted series of /metrics, scanned as they arrive."""
        scanner = Scanner(self._wanted, self._histograms)
        started = time.monotonic()
        length = 0
        async with self._local.get("/metrics") as response:
            try:
                async for piece in pieces(response, MAX_PAGE_BYTES):
                    length += len(piece)
                    scanner.feed(piece)
                scanner.close()
            except LineTooLongError as error:
                raise LocalError(Fault.MALFORMED, str(error)) from None
        if not scanner.values:
            raise LocalError(Fault.MALFORMED, "/metrics shows none of the expected series")
        return Page(scanner.values, scanner.buckets, length, time.monotonic() - started)
