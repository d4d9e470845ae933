"""Servers that are no good Prometheus: bounded, and never taken for calm."""

import asyncio
import json
import re
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from kvserving_operator.observe import prometheus
from kvserving_operator.observe.prometheus import Fault, Prometheus, Reading, Server

PODS = {"x-prefill-0": "uid"}
TIME = "time()"
PATIENT = 60.0
"""Seconds for one who answers, on a machine that is busy."""


class Odd:
    """Answers /api/v1/query on a port of its own, as a test says."""

    def __init__(self) -> None:
        self.how: Any = None
        self.asked: list[web.Request] = []
        self.stray = 0
        self.url = ""
        self.dear = "dear-"
        """In a query: it takes for ever."""

    @property
    def times(self) -> int:
        """Readings that were begun."""
        return sum(request.query["query"] == TIME for request in self.asked)

    async def query(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        queried = request.query["query"]
        if queried == TIME and self.how not in ("hang", "status"):
            return _answer("scalar", [1000.0, "1000"])
        return await self._behave(request, queried)

    async def _behave(self, request: web.Request, queried: str) -> web.StreamResponse:
        if self.how == "hang" or (self.how == "dear" and self.dear in queried):
            await asyncio.Event().wait()
        if self.how == "redirect":
            raise web.HTTPFound("/elsewhere")
        if self.how == "status":
            return web.Response(status=503)
        if self.how in ("endless", "gzip"):
            coding = {"Content-Encoding": "gzip"} if self.how == "gzip" else {}
            response = web.StreamResponse(headers=coding)
            await response.prepare(request)
            while True:
                await response.write(b"x" * 100_000)
        if isinstance(self.how, bytes):
            return web.Response(body=self.how)
        return _answer("matrix", self.how if isinstance(self.how, list) else [])

    async def elsewhere(self, _: web.Request) -> web.Response:
        self.stray += 1
        return web.Response()


def _answer(kind: str, result: object) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    served = Odd()
    app = web.Application()
    app.router.add_get("/prom/api/v1/query", served.query)
    app.router.add_get("/{path:.*}", served.elsewhere)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prom/"
    yield served
    await runner.cleanup()


async def read(odd: Odd, source: Prometheus, **more: Any) -> Reading:
    return await ask(source, Server(url=odd.url, token="t"), **more)


async def ask(
    source: Prometheus, server: Server | None, pods: Any = PODS, owner: str = "o", **more: Any
) -> Reading:
    async def connect() -> Server | None:
        return server

    return await source.read(connect, target=server, owner=owner, namespace="ns", pods=pods, **more)


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("redirect", Fault.STATUS),
        ("status", Fault.STATUS),
        ("endless", Fault.TOO_LARGE),
        ("gzip", Fault.TOO_LARGE),
        (b"", Fault.MALFORMED),
        (b"[" * 100_000, Fault.MALFORMED),
        (b'{"status":"error","error":"no"}', Fault.MALFORMED),
        (b'{"status":"success","data":[]}', Fault.MALFORMED),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', Fault.MALFORMED),
    ],
)
async def test_what_is_no_answer_is_a_fault(odd: Odd, how: object, fault: Fault):
    odd.how = how
    async with Prometheus() as source:
        assert await read(odd, source) == Reading(fault=fault)
    assert odd.stray == 0, "a redirect was followed"


async def test_an_answer_of_ten_megabytes_costs_no_more_than_its_limit(odd: Odd):
    row = {"metric": {"__name__": "kvserving_agent_engine_up"}, "values": [[1, "1"]]}
    odd.how = json.dumps([row] * 130_000).encode()
    assert len(odd.how) > 10_000_000
    async with Prometheus() as source:
        tracemalloc.start()
        assert await read(odd, source) == Reading(fault=Fault.TOO_LARGE)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 5 * prometheus.MOST_BYTES


@pytest.mark.parametrize(
    "how",
    [
        [{"metric": {}, "values": []}, 7, None, {"metric": 1}, {"metric": {}, "values": [[1]]}],
        [{"metric": {"pod": ["x"]}, "values": [[True, "1"], ["1", "1"], [1, 1], [None, None]]}],
        [{"metric": {str(n): "" for n in range(1000)}, "values": []}],
    ],
)
async def test_series_that_are_none_are_left_out(odd: Odd, how: object):
    odd.how = how
    async with Prometheus() as source:
        assert await read(odd, source) == Reading(facts={"x-prefill-0": None})


async def test_silence_costs_the_deadline_once(odd: Odd, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "DEADLINE", 0.2)
    odd.how = "hang"
    now = [0.0]
    async with Prometheus(clock=lambda: now[0]) as source:
        assert await read(odd, source) == Reading(fault=Fault.SLOW)
        asked = len(odd.asked)
        assert await read(odd, source) == Reading(fault=Fault.SLOW)
        assert len(odd.asked) == asked, "asked again although it was silent a moment ago"
        odd.how, now[0] = [], prometheus.SILENT + 1
        monkeypatch.setattr(prometheus, "DEADLINE", PATIENT)
        assert (await read(odd, source)).fault is None


async def test_a_server_that_hangs_is_asked_once_for_all_objects(
    odd: Odd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prometheus, "DEADLINE", 0.3)
    odd.how = "hang"
    now = [0.0]
    server = Server(url=odd.url)
    async with Prometheus(clock=lambda: now[0]) as source:
        for second in range(0, 600, 60):
            now[0] = float(second)
            for owner in range(50):
                found = await ask(source, server, owner=str(owner), anew=True)
                assert found == Reading(fault=Fault.SLOW)
        assert odd.times <= 10, "once an interval at most"
        # While one asks, nobody waits beside him.
        now[0] += 600
        before = odd.times
        found = await asyncio.gather(
            *(ask(source, server, owner=str(owner), anew=True) for owner in range(50))
        )
        assert {reading.fault for reading in found} == {Fault.SLOW}
        assert odd.times == before + 1
        now[0], odd.how = now[0] + 600, []
        monkeypatch.setattr(prometheus, "DEADLINE", PATIENT)
        for owner in range(50):
            assert (await ask(source, server, owner=str(owner), anew=True)).fault is None


async def test_silence_to_one_is_none_to_others(odd: Odd, monkeypatch: pytest.MonkeyPatch):
    """Questions that take too long, and credentials that a proxy hangs for."""
    monkeypatch.setattr(prometheus, "DEADLINE", 1.0)
    odd.how = "dear"
    server, dear = Server(url=odd.url), {"dear-prefill-0": "uid"}
    async with Prometheus(clock=lambda: 0.0) as source:
        assert (await ask(source, server, dear, owner="dear")).fault is Fault.SLOW
        before = odd.times
        assert (await ask(source, server, dear, owner="dear", anew=True)).fault is Fault.SLOW
        assert odd.times == before, "asked again although it was silent a moment ago"
        monkeypatch.setattr(prometheus, "DEADLINE", PATIENT)
        assert (await ask(source, server, owner="other")).fault is None
        monkeypatch.setattr(prometheus, "DEADLINE", 0.3)
        odd.how = "hang"
        stranger = Server(url=odd.url, token="of a stranger")
        assert (await ask(source, stranger, owner="stranger")).fault is Fault.SLOW
        odd.how = []
        monkeypatch.setattr(prometheus, "DEADLINE", PATIENT)
        assert (await ask(source, stranger, owner="friend")).fault is Fault.SLOW
        assert (await ask(source, server, owner="another")).fault is None


async def test_a_reading_is_remembered_for_its_pods(odd: Odd):
    async with Prometheus(clock=lambda: 0.0) as source:
        await read(odd, source)
        await read(odd, source)
        assert len(odd.asked) == 5
        assert {r.headers["Authorization"] for r in odd.asked} == {"Bearer t"}
        await read(odd, source, anew=True)
        assert len(odd.asked) == 10
        server = Server(url=odd.url, token="t")
        assert list((await ask(source, server, {"x-decode-0": "v"})).facts) == ["x-decode-0"]
        assert len(odd.asked) == 15
        await read(odd, source)
        assert len(odd.asked) == 15, "both roles are asked about in turn"
        await ask(source, server, {"x-prefill-0": "successor"})
        assert len(odd.asked) == 20
        await ask(source, Server(url=odd.url, token="u"), {"x-prefill-0": "successor"})
        assert len(odd.asked) == 25, "what was answered to other credentials counted"


async def test_without_its_credentials_nobody_is_asked(odd: Odd):
    async with Prometheus() as source:
        assert await ask(source, None) == Reading(fault=Fault.NO_CREDENTIALS)
    assert odd.asked == []


async def test_without_pods_nobody_is_asked(odd: Odd):
    async with Prometheus() as source:
        assert await ask(source, Server(url=odd.url), {}) == Reading()
    assert odd.asked == []


async def test_queries_name_the_object_s_pods_in_few_words(odd: Odd):
    names = [f"x.y-{role}-{n}" for role in ("prefill", "decode") for n in range(500)]
    async with Prometheus() as source:
        await ask(source, Server(url=odd.url), dict.fromkeys(names, "u"))
    queries = [r.query["query"] for r in odd.asked if r.query["query"] != "time()"]
    assert len(queries) == 4
    assert max(map(len, queries)) < 500
    [pattern] = {re.search(r'pod=~"([^"]+)"', query)[1] for query in queries}  # type: ignore[index]
    assert all(re.fullmatch(pattern, name) for name in names)
    assert not re.fullmatch(pattern, "xzy-prefill-0")
    assert not re.fullmatch(pattern, "x.y-valkey-0")


@pytest.mark.parametrize("authority", ["", "nonsense", "# Autorit\u00e9 de certification\n"])
async def test_a_bundle_without_a_certificate_is_a_fault(odd: Odd, authority: str):
    async with Prometheus() as source:
        server = Server(url=odd.url, authority=authority or " ")
        assert await ask(source, server) == Reading(fault=Fault.CERTIFICATE)
    assert odd.asked == []
