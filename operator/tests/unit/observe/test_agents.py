"""Asking agents: a real server, whatever it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe import agents
from kvserving_operator.observe.agents import Agents
from tests.unit.observe.pods import address_of, uid_at

GOOD = {"schema": 1, "capabilities": [], "store": None}


def facts(name: str) -> EngineFacts:
    return EngineFacts(pod=name)


class Server:
    """Answers /v1/facts on a port of its own."""

    def __init__(self) -> None:
        self.answer: Any = GOOD
        self.status = 200
        self.delay = 0.0
        self.pieces = 0
        self.together = 0
        """Answer nobody until so many have asked."""
        self.all_asked = asyncio.Event()
        self.tokens: list[str | None] = []
        self.port = 0
        self.occupied: dict[str, str] = {}
        """Addresses at which another pod answers, with its uid."""

    def of(self, request: web.Request) -> dict[str, Any]:
        """The answer as that of the pod that was asked, or of another one that is there now."""
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        return {"podUid": self.occupied.get(address) or uid_at(address)} | self.answer

    async def facts(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        await asyncio.sleep(self.delay)
        if len(self.tokens) >= self.together:
            self.all_asked.set()
        await self.all_asked.wait()
        text = self.answer if isinstance(self.answer, str) else json.dumps(self.of(request))
        if not self.pieces:
            return web.Response(text=text, status=self.status)
        response = web.StreamResponse(headers={"Content-Length": str(len(text))})
        await response.prepare(request)
        size = len(text) // self.pieces + 1
        for start in range(0, len(text), size):
            await response.write(text[start : start + size].encode())
            for _ in range(20):
                await asyncio.sleep(0)  # the reader's turn: it may see the pieces one by one
        return response


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    served = Server()
    app = web.Application()
    app.router.add_get("/v1/facts", served.facts)
    app.router.add_put("/v1/tuning", served.facts)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)  # noqa: S104
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


def pod(name: str, *, addressed: bool = True) -> dict[str, Any]:
    uid = f"uid-{name}"
    status = {"podIP": address_of(uid)} if addressed else {}
    return {"metadata": {"name": name, "uid": uid}, "status": status}


async def ask(server: Server, *pods: dict[str, Any]) -> dict[str, Any]:
    async with Agents(port=server.port) as asking:
        return await asking.facts(pods, "secret")


async def test_every_pod_with_an_address_is_asked_with_the_token(server: Server):
    found = await ask(server, pod("a"), pod("b"), pod("c", addressed=False))
    assert found == {"a": facts("a"), "b": facts("b")}
    assert server.tokens == ["Bearer secret"] * 2


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "[",
        "[]",
        '{"schema": 2, "podUid": "uid-a"}',
        "{" * 50_000,
        '{"schema": 1, "podUid": "uid-a", "x": "%s"}' % ("y" * 70_000),
    ],
)
async def test_what_is_no_answer_is_none(server: Server, answer: str):
    server.answer = answer
    assert await ask(server, pod("a")) == {"a": None}


async def test_an_answer_in_several_pieces_is_read_whole(server: Server):
    server.answer, server.pieces = GOOD | {"numbers": "x" * 20_000}, 5
    assert await ask(server, pod("a")) == {"a": facts("a")}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n"


@asynccontextmanager
async def answering_at_length(
    piece: bytes, *, every: float
) -> AsyncIterator[tuple[int, list[int]]]:
    """A port where a body of 10 MB comes in pieces; how many bytes of it each client has taken."""
    taken: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        taken.append(0)
        with suppress(OSError):
            while taken[-1] < 10_000_000:
                writer.write(piece)
                await writer.drain()
                taken[-1] += len(piece)
                await asyncio.sleep(every)
        writer.transport.abort()

    server = await asyncio.start_server(answer, "0.0.0.0", 0)  # noqa: S104
    async with server:
        yield server.sockets[0].getsockname()[1], taken


async def test_a_body_of_ten_megabytes_is_not_read_to_its_end():
    async with answering_at_length(b"y" * 65_536, every=0.0) as (port, taken):
        async with Agents(port=port) as asking:
            assert await asking.facts([pod("a")], "t") == {"a": None}
        # What is in the buffers of the kernel counts as taken here.
        assert len(taken) == 1
        assert taken[0] < 10_000_000


async def test_a_body_that_comes_slowly_costs_one_time_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agents, "TIMEOUT", 0.5)
    async with answering_at_length(b"{", every=0.02) as (port, taken):
        async with Agents(port=port) as asking:
            assert await asking.facts([pod("a")], "t") == {"a": None}
            assert await asking.facts([pod("a")], "t", anew=True) == {"a": None}
        assert len(taken) == 1, "who is as slow as that is left alone"
        assert taken[0] < 1_000


async def test_a_refusal_and_a_redirect_are_none(server: Server):
    for status in (401, 302, 500):
        server.status = status
        assert await ask(server, pod("a")) == {"a": None}


async def test_nobody_there_is_none(server: Server):
    async with Agents(port=1) as asking:
        assert await asking.facts([pod("a")], "t") == {"a": None}


async def test_silence_costs_one_time_out_and_is_remembered(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "TIMEOUT", 0.1)
    server.delay = 30.0
    now = [0.0]
    async with Agents(port=server.port, clock=lambda: now[0]) as asking:
        assert await asking.facts([pod("a"), pod("b")], "t") == {"a": None, "b": None}
        assert len(server.tokens) == 2
        assert await asking.facts([pod("a")], "t") == {"a": None}
        assert len(server.tokens) == 2, "asked again although it was silent a moment ago"
        server.delay, now[0] = 0.0, agents.SILENT + 1
        monkeypatch.setattr(agents, "TIMEOUT", 60.0)
        assert await asking.facts([pod("a")], "t") == {"a": facts("a")}


async def test_who_hangs_is_asked_ever_more_seldom_also_anew(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "TIMEOUT", 0.3)
    server.delay = 30.0
    now = [0.0]
    async with Agents(port=server.port, clock=lambda: now[0]) as asking:
        times = []
        for second in range(0, 600, 10):
            now[0], before = float(second), len(server.tokens)
            # Somebody who takes what is remembered, and somebody who does not.
            for anew in (False, True):
                assert await asking.facts([pod("a")], "t", anew=anew) == {"a": None}
            times += [second] * (len(server.tokens) - before)
        assert times == [0, 30, 90, 210, 330, 450, 570]
        now[0], server.delay = 690.0, 0.0
        monkeypatch.setattr(agents, "TIMEOUT", 60.0)
        for _ in range(3):
            assert await asking.facts([pod("a")], "t", anew=True) == {"a": facts("a")}
        assert len(server.tokens) == len(times) + 3, "it is as good as any other again"


async def test_who_hangs_while_it_is_told_settings_is_told_ever_more_seldom(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "TELL_TIMEOUT", 0.3)
    server.delay = 30.0
    now = [0.0]
    async with Agents(port=server.port, clock=lambda: now[0]) as asking:
        times = []
        for second in range(0, 900, 60):
            now[0], before = float(second), len(server.tokens)
            answered = await asking.tell(pod("a"), "t", {"mode": "Auto"}, start_id="s-1")
            assert answered.why == "its agent is silent"
            times += [second] * (len(server.tokens) - before)
        assert times == [0, 60, 180, 420, 720]
        server.delay = 0.0
        monkeypatch.setattr(agents, "TELL_TIMEOUT", 60.0)
        anew = await asking.tell(pod("a"), "t", {"mode": "Auto"}, start_id="s-2")
        assert anew.why == "", "an engine that has started anew is another one"


async def test_many_that_hang_take_nobody_s_turn(server: Server, monkeypatch: pytest.MonkeyPatch):
    for bound in ("TIMEOUT", "CONNECT_TIMEOUT"):
        monkeypatch.setattr(agents, bound, 60.0)
    server.together = 100
    found = await ask(server, *(pod(f"p-{number}") for number in range(100)))
    assert [name for name, facts in found.items() if facts is None] == []


async def test_nothing_is_kept_of_pods_that_nobody_asks_about_any_more(server: Server):
    now = [0.0]
    async with Agents(port=server.port, clock=lambda: now[0]) as asking:
        for number in range(20):
            await asking.facts([pod(f"p-{number}")], "t")
            now[0] += agents.REMEMBERED + 1
        assert set(asking._answers) == {"uid-p-19"}


async def test_asked_anew_nothing_remembered_counts(server: Server):
    async with Agents(port=server.port) as asking:
        await asking.facts([pod("a")], "t")
        server.answer = {**GOOD, "capabilities": ["X"]}
        assert (await asking.facts([pod("a")], "t"))["a"] == facts("a")
        assert (await asking.facts([pod("a")], "t", anew=True))["a"].capabilities == {"X"}
        assert (await asking.facts([pod("a")], "t"))["a"].capabilities == {"X"}


async def test_a_successor_of_the_same_name_is_another_pod(server: Server):
    async with Agents(port=server.port) as asking:
        assert await asking.facts([pod("a")], "t") == {"a": facts("a")}
        server.answer = {**GOOD, "capabilities": ["X"]}
        assert (await asking.facts([pod("a")], "t"))["a"] == facts("a")
        successor = pod("a") | {"metadata": {"name": "a", "uid": "another"}}
        server.occupied[pod("a")["status"]["podIP"]] = "another"
        assert (await asking.facts([successor], "t"))["a"].capabilities == {"X"}


async def test_what_another_pod_says_at_a_pod_s_old_address_is_not_of_that_pod(server: Server):
    async with Agents(port=server.port) as asking:
        assert await asking.facts([pod("a"), pod("b")], "t") == {"a": facts("a"), "b": facts("b")}
        server.occupied[pod("a")["status"]["podIP"]] = "uid-c"
        found = await asking.facts([pod("a"), pod("b")], "t", anew=True)
        assert found == {"a": None, "b": facts("b")}
        server.occupied.clear()
        assert await asking.facts([pod("a")], "t", anew=True) == {"a": facts("a")}
