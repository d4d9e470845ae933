"""A proxy in front of the real API server that misbehaves on demand.

It forwards every request with the operator's own client certificate, so that RBAC and the audit log
see the operator. A test installs rules: each request is shown to them in order, and the first that
returns a fault decides. Watches can be cut, held up, made to repeat themselves, or told what API
servers tell in bad hours.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

_HOP_BY_HOP = frozenset(
    {"connection", "content-length", "transfer-encoding", "host", "accept-encoding"}
)
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True)
class Seen:
    """A request as a rule sees it; `number` counts from 1 for every kind of it."""

    method: str
    path: str
    number: int
    write: bool
    watch: bool


@dataclass(frozen=True)
class Fault:
    """What happens instead: a status, or (status 0) a closed connection; `forwarded`: after the
    API server has done what was asked, so that only the answer is lost."""

    status: int = 0
    retry_after: str = ""
    forwarded: bool = False


Rule = Callable[[Seen], Fault | None]


@dataclass
class _Watch:
    response: web.StreamResponse
    of_children: bool
    told: list[bytes] = field(default_factory=list)


class FaultProxy:
    """Listens on a free port of loopback, in a thread of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        self._upstream = config["clusters"][0]["cluster"]["server"]
        self._context = _tls(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._watches: dict[asyncio.Task[Any], _Watch] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._counts: dict[bool, int] = {False: 0, True: 0}
        self.rules: list[Rule] = []
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def watches(self) -> int:
        """Watches that are open now."""
        return len(self._watches)

    def cut_watches(self) -> int:
        """Close all open watches without a word; returns how many there were."""
        return self._call(self._cut(b""))

    def tell_watches(self, code: int) -> int:
        """Send an ERROR event of this code into all open watches and close them."""
        status = {"kind": "Status", "code": code, "reason": "Expired", "message": "told by a test"}
        event = {"type": "ERROR", "object": status}
        return self._call(self._cut(json.dumps(event).encode() + b"\n"))

    def hold_watches(self) -> None:
        """Keep what the API server tells in watches of children, which stay open, to ourselves."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def release_watches(self) -> None:
        """Pass on what was held, and what comes."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def repeat_watches(self) -> int:
        """Tell all open watches of children once more all that they were told."""
        return self._call(self._repeat())

    def _call(self, action: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(20)

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._context)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        await self._cut(b"")
        await self._runner.cleanup()
        await self._session.close()

    async def _cut(self, farewell: bytes) -> int:
        watches = list(self._watches.items())
        for task, watch in watches:
            if farewell:
                await watch.response.write(farewell)
            task.cancel()
        return len(watches)

    async def _repeat(self) -> int:
        watches = [watch for watch in self._watches.values() if watch.of_children]
        for watch in watches:
            await watch.response.write(b"".join(watch.told))
        return len(watches)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        write = request.method in _WRITES
        self._counts[write] += 1
        watch = request.query.get("watch") == "true"
        seen = Seen(request.method, request.path_qs, self._counts[write], write, watch)
        fault = next((f for rule in list(self.rules) if (f := rule(seen)) is not None), None)
        if fault is not None and not fault.forwarded:
            return self._fail(request, fault)
        try:
            response = await self._forward(request, watch=watch)
        except aiohttp.ClientError:
            return self._fail(request, Fault())
        return self._fail(request, fault) if fault is not None else response

    def _fail(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.status == 0:
            assert request.transport is not None
            request.transport.close()
            return web.Response(status=502)
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        body = {"kind": "Status", "code": fault.status, "reason": "Injected", "message": "a fault"}
        return web.json_response(body, status=fault.status, headers=headers)

    async def _forward(self, request: web.Request, *, watch: bool) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        async with self._session.request(
            request.method,
            self._upstream + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            skip_auto_headers=("Content-Type",),
            timeout=aiohttp.ClientTimeout(total=None if watch else 30),
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if watch and answer.status == 200:
                return await self._stream(request, answer, kept)
            body = await answer.read()
            return web.Response(status=answer.status, headers=kept, body=body)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        watch = _Watch(response, of_children="/kvservings" not in request.path)

        async def copy() -> None:
            async for chunk in answer.content.iter_any():
                if watch.of_children:
                    await self._flowing.wait()
                watch.told.append(chunk)
                await response.write(chunk)

        task = asyncio.create_task(copy())
        self._watches[task] = watch
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            del self._watches[task]
        return response


def _tls(config: dict[str, Any]) -> ssl.SSLContext:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as pem:
        for field in ("client-certificate-data", "client-key-data"):
            pem.write(base64.b64decode(user[field]))
        pem.flush()
        context.load_cert_chain(pem.name)
    return context
