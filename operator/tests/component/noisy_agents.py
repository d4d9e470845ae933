"""Stand-ins for the agents of pods that kwok plays: their numbers are others with each answer.

kwok gives its pods addresses of this machine's loopback (`cluster.simulated`), so the operator asks
them as it asks any agent, and the answer comes from here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kvserving_agent.series import VLLM_NUMBERS
from kvserving_operator.engines import ports

CAPABILITIES = ["AsyncLoading", "LoadOrRecompute", "RankedRemote", "ShardedStore"]


class Asked:
    """How many questions were answered, by all of them."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self.times = 0
        self._random = random.Random(11)  # noqa: S311

    def facts(self) -> bytes:
        """An open store and a busy engine (kvserving_agent/facts.py)."""
        self.times = next(self._count)
        number = self._random.random
        state = {
            "startId": "s1",
            "closed": None,
            "settings": {"mode": self._random.choice(["Auto", "Async"])},
            "since": number() * 1e9,
            "counters": {"bytes_read": number() * 1e12, "misses": number() * 1e6},
            "ageSeconds": number() * 5,
            "lastError": None,
        }
        numbers = {name: number() * 1e6 for name in VLLM_NUMBERS}
        engine = {"type": "VLLM", "up": True, "ready": True, "startId": "e1"}
        facts = {"schema": 1, "engine": engine, "capabilities": CAPABILITIES}
        return json.dumps({**facts, "store": state, "numbers": numbers}).encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer; the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        known = head.startswith("GET /v1/facts ") and "\r\nAuthorization: Bearer " in head
        body = self.facts() if known else b""
        status = "200 OK" if known else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@contextmanager
def answering(addresses: Sequence[str]) -> Iterator[Asked]:
    """An agent at each address, for as long as the block lasts."""
    asked, loop = Asked(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    start = asyncio.start_server(asked.answer, addresses, ports.AGENT.number)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(timeout=30)
    try:
        yield asked
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
