"""Stand-ins for the agents of simulated pods: who answers as the pod with that address.

The pods have addresses of this machine's loopback (kwok's from `cluster.simulated`), so the
operator asks them as it asks any agent, and the answer comes from here.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from kvserving_agent.series import VLLM_NUMBERS
from kvserving_operator.engines import ports
from kvserving_operator.kube import paths

from .harness import Cluster

CAPABILITIES = ["AsyncLoading", "LoadOrRecompute", "RankedRemote", "ShardedStore"]
_KNOWN = 1.0
"""Seconds for which it is known which pod has an address."""


class StandIns:
    """Agents by address; subclasses say what they answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._uids: dict[str, str] = {}
        self._listed = float("-inf")
        self.times = 0
        """How many questions were answered."""
        self.bytes = 0
        """Of the last answer."""

    def facts(self) -> dict[str, Any]:
        """What an agent says (kvserving_agent/facts.py), but for whose it is."""
        raise NotImplementedError

    def told(self, settings: Any) -> dict[str, Any] | None:
        """The answer to settings that were sent; None: they are not taken."""
        del settings
        return None

    def _uid(self, address: str) -> str | None:
        if time.monotonic() > self._listed + _KNOWN:
            pods = self._cluster.list(paths.PODS)
            found = {pod["status"].get("podIP"): pod["metadata"]["uid"] for pod in pods}
            self._uids, self._listed = found, time.monotonic()
        return self._uids.get(address)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer; the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        found: dict[str, Any] | None = None
        if "\r\nAuthorization: Bearer " in head and head.startswith("GET /v1/facts "):
            self.times += 1
            address = writer.get_extra_info("sockname")[0]
            uid = await asyncio.to_thread(self._uid, address)
            found = {"schema": 1, "podUid": uid, **self.facts()}
        elif "\r\nAuthorization: Bearer " in head and head.startswith("PUT /v1/tuning "):
            lines = (line.partition(":") for line in head.lower().splitlines())
            length = next(int(size) for name, _, size in lines if name == "content-length")
            found = self.told(json.loads(await reader.readexactly(length)))
        body = b"" if found is None else json.dumps(found).encode()
        self.bytes = len(body)
        status = "200 OK" if body else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


class Noisy(StandIns):
    """Open stores and busy engines, whose numbers are others with each answer."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._random = random.Random(11)  # noqa: S311

    def facts(self) -> dict[str, Any]:
        """See `StandIns`."""
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
        return {"engine": engine, "capabilities": CAPABILITIES, "store": state, "numbers": numbers}


Made = TypeVar("Made", bound=StandIns)


@contextmanager
def answering(agents: Made, addresses: Sequence[str]) -> Iterator[Made]:
    """An agent at each address, for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    start = asyncio.start_server(agents.answer, addresses, ports.AGENT.number)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(timeout=30)
    try:
        yield agents
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
