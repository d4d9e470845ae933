"""LIST, watch, LIST again: against a server that speaks HTTP and breaks off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.credentials import Credentials
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.cache import ChildCache
from kvserving_operator.runtime.watches import ChildWatches
from tests.unit.observe.test_cache import Object, bookmark, service

KEY = Key("n", "x")
END = object()
"""Ends the watch; a number: with this status, in the stream."""


class Server:
    """Serves one collection: LISTs what `items` holds, and tells in watches what is put in."""

    def __init__(self) -> None:
        self.items: list[Object] = []
        self.version = 10
        self.refuse: dict[str, int] = {}
        self.refused: asyncio.Queue[str] = asyncio.Queue()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.asked: list[dict[str, str]] = []
        self.watching = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        verb = "watch" if "watch" in request.query else "list"
        if verb in self.refuse:
            self.refused.put_nowait(verb)
            return web.json_response({"kind": "Status"}, status=self.refuse[verb])
        return await (self._watch(request) if verb == "watch" else self._list(request))

    async def _list(self, request: web.Request) -> web.Response:
        limit, start = int(request.query["limit"]), int(request.query.get("continue", "0"))
        page: Object = {"resourceVersion": str(self.version)}
        if start + limit < len(self.items):
            page["continue"] = str(start + limit)
        body = {"metadata": page, "items": self.items[start : start + limit]}
        return web.json_response(body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.watching.set()
        while (event := await self.events.get()) is not END:
            if isinstance(event, int):
                event = {"type": "ERROR", "object": {"kind": "Status", "code": event}}
            await response.write(event if isinstance(event, bytes) else _line(event))
        self.watching.clear()
        return response

    def tell(self, kind: str, obj: Object) -> None:
        self.events.put_nowait({"type": kind, "object": obj})


def _line(event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


class Watching:
    """The watch of Services on the server, and whom it woke."""

    def __init__(self, server: Server, client: ApiClient, interval: float) -> None:
        self.server = server
        self.cache = ChildCache([paths.SERVICES], ())
        self.shelf = self.cache.shelves[0]
        self.woken: asyncio.Queue[Key] = asyncio.Queue()
        self.watches = ChildWatches(
            client, self.cache, wake=self.woken.put_nowait, interval=interval
        )

    async def next(self) -> Key:
        async with asyncio.timeout(5):
            return await self.woken.get()

    async def until_watched(self) -> None:
        async with asyncio.timeout(5):
            await self.server.watching.wait()

    def held(self) -> list[str] | None:
        found = self.shelf.owned(KEY)
        return None if found is None else [m["metadata"]["name"] for m in found]


@asynccontextmanager
async def watching(server: Server, *, interval: float = 300.0) -> AsyncIterator[Watching]:
    app = web.Application()
    app.router.add_route("GET", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    credentials = Credentials(kubeconfig=None, configuration=configuration)
    async with ApiClient(credentials, attempts=1) as client:
        made = Watching(server, client, interval)
        running = asyncio.create_task(made.watches.run())
        try:
            await made.watches.begun()
            yield made
        finally:
            running.cancel()
            await asyncio.wait({running})
            server.events.put_nowait(END)
            await runner.cleanup()


async def test_the_first_list_fills_the_cache_and_wakes_nobody() -> None:
    server = Server()
    server.items = [service("a", 9)]
    async with watching(server) as made:
        assert made.held() == ["a"]
        assert made.woken.empty()
        await made.until_watched()
    lists = [query for query in server.asked if "watch" not in query]
    assert len(lists) == 1
    assert lists[0]["labelSelector"] == "kvserving.io/kvserving"
    watch = server.asked[1]
    assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("10", "true")
    assert 270 <= int(watch["timeoutSeconds"]) <= 330


async def test_a_long_list_is_read_in_pages() -> None:
    server = Server()
    server.items = [service(f"s-{number:04}", 1) for number in range(1200)]
    async with watching(server) as made:
        assert made.held() == [f"s-{number:04}" for number in range(1200)]
    assert [query.get("continue") for query in server.asked[:3]] == [None, "500", "1000"]


async def test_events_are_held_and_wake_their_owner() -> None:
    server = Server()
    async with watching(server) as made:
        await made.until_watched()
        server.tell("BOOKMARK", bookmark(11))
        server.tell("ADDED", service("a", 12))
        assert await made.next() == KEY
        assert made.held() == ["a"]
        large = service("b", 13, annotations={"note": "x" * 300_000})
        line = _line({"type": "ADDED", "object": large}) + _line(
            {"type": "DELETED", "object": service("a", 14)}
        )
        for start in range(0, len(line), 70_000):
            server.events.put_nowait(line[start : start + 70_000])
        assert [await made.next(), await made.next()] == [KEY, KEY]
        assert made.held() == ["b"]


ODD = (
    b"no json\n",
    b'{"type": "ADDED"}\n',
    b'{"type": "ADDED", "object": {}}\n',
    b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "40"}}}\n',
    b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": null}}}\n',
    b'{"type": "ADDED", "object": {"metadata": []}}\n',
    b'{"type": "ERROR", "object": {"code": "odd"}}\n',
)
"""Lines that are no events: of a proxy, say."""


@pytest.mark.parametrize("end", [END, 410, 500, *ODD])
async def test_after_any_end_it_lists_again_and_wakes_whom_it_concerns(end: Any) -> None:
    server = Server()
    server.items = [service("a", 9), service("c", 9, owner="y")]
    async with watching(server) as made:
        await made.until_watched()
        server.items = [service("b", 20), service("c", 9, owner="y")]
        server.version = 30
        server.events.put_nowait(end)
        if end is not END:
            server.events.put_nowait(END)
        assert await made.next() == KEY
        await made.until_watched()
        assert made.held() == ["b"]
        assert made.woken.empty()
        assert server.asked[-1]["resourceVersion"] == "30"


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_what_cannot_be_watched_is_tried_again_and_answers_nothing(verb: str) -> None:
    server = Server()
    server.refuse = {verb: 403}
    async with watching(server) as made:
        for _ in range(3):
            await server.refused.get()
        if verb == "list":
            assert made.held() is None
        server.items = [service("a", 15)]
        server.version = 20
        server.refuse = {}
        assert await made.next() == KEY
        await made.until_watched()
        assert made.held() == ["a"]


async def test_a_watch_that_the_server_should_have_ended_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvserving_operator.runtime.watches._GRACE", 0.2)
    server = Server()
    async with watching(server, interval=0.1) as made:
        await made.until_watched()
        server.items = [service("a", 15)]
        server.version = 20
        assert await made.next() == KEY


async def test_versions_that_are_no_numbers_leave_everything_to_lists() -> None:
    server = Server()
    server.items = [service("a", 0, resourceVersion="abc")]
    server.version = "abc"  # type: ignore[assignment]
    async with watching(server) as made:
        assert made.held() is None
