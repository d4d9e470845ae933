"""The routes."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import aclosing
from typing import Any

from aiohttp import web

from kvserving_engine_sim import NAME, VERSION
from kvserving_engine_sim.front.answers import Answer
from kvserving_engine_sim.front.client import EngineClient
from kvserving_engine_sim.front.protocol import Ask, RequestError, parse
from kvserving_engine_sim.front.text import Decoder
from kvserving_engine_sim.metrics.registry import render
from kvserving_engine_sim.scheduler.request import Delta, Finish
from kvserving_engine_sim.settings import Settings

# A 200,000-token prompt is 0.2 MB as text and 0.8 MB as a list of tokens.
_MAX_BODY = 64 * 2**20


class Front:
    """The HTTP application of one engine."""

    def __init__(self, settings: Settings, client: EngineClient) -> None:
        self._settings = settings
        self._client = client
        self.draining = False

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.post("/ping", self._health),
                web.get("/version", self._version),
                web.get("/load", self._load),
                web.get("/metrics", self._metrics),
            ]
        )
        if self._settings.development_routes:
            app.router.add_post("/reset_prefix_cache", self._reset)
        return app

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            ask = await self._parse(request, chat=chat)
            answer = Answer(ask, _answer_id(request, chat=chat), int(time.time()))
            if ask.stream:
                return await self._stream(request, ask, answer)
            return await self._whole(ask, answer)
        except RequestError as error:
            return web.json_response(error.body(), status=error.status)

    async def _parse(self, request: web.Request, *, chat: bool) -> Ask:
        if self._client.dead:
            raise RequestError(self._client.dead, status=500, kind="InternalServerError")
        if self.draining:
            raise RequestError(
                "the engine is shutting down", status=503, kind="ServiceUnavailableError"
            )
        try:
            body = await request.json()
        except ValueError:
            raise RequestError("the body is not JSON") from None
        settings = self._settings
        return parse(
            body, chat=chat, served=settings.served_names, max_model_len=settings.max_model_len
        )

    async def _whole(self, ask: Ask, answer: Answer) -> web.Response:
        decoder = Decoder(ask.stop, include_stop=ask.include_stop)
        async with aclosing(self._client.generate(ask, answer.answer_id)) as deltas:
            async for delta in deltas:
                _raise_error(delta)
                _take(answer, decoder, delta)
        return web.json_response(answer.whole())

    async def _stream(self, request: web.Request, ask: Ask, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        decoder = Decoder(ask.stop, include_stop=ask.include_stop)
        async with aclosing(self._client.generate(ask, answer.answer_id)) as deltas:
            async for delta in deltas:
                try:
                    _raise_error(delta)
                except RequestError as error:
                    if not response.prepared:
                        raise
                    await _send(response, error.body())
                    continue
                text = _take(answer, decoder, delta)
                first = not response.prepared
                if first:
                    await response.prepare(request)
                if text or first or answer.finish:
                    await _send(response, answer.chunk(text, delta.tokens, first=first))
        if ask.stream_usage and answer.finish:
            await _send(response, answer.usage_chunk())
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _models(self, _: web.Request) -> web.Response:
        settings = self._settings
        cards: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": NAME,
                "root": settings.model,
                "parent": None,
                "max_model_len": settings.max_model_len,
                "permission": [],
            }
            for name in settings.served_names
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._client.dead else 200)

    async def _version(self, _: web.Request) -> web.Response:
        simulated = self._settings.simulation.vllm_version
        return web.json_response(
            {"version": f"{simulated}+kvserving.engine.sim", "simulator": NAME, "release": VERSION}
        )

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self._client.active})

    async def _metrics(self, _: web.Request) -> web.Response:
        page, content_type = await asyncio.to_thread(render)
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _reset(self, _: web.Request) -> web.Response:
        done = await self._client.reset_prefix_cache()
        return web.Response(status=200 if done else 503)


def _answer_id(request: web.Request, *, chat: bool) -> str:
    given = request.headers.get("X-Request-Id", "")[:512]
    return f"{'chatcmpl' if chat else 'cmpl'}-{given or uuid.uuid4().hex}"


def _take(answer: Answer, decoder: Decoder, delta: Delta) -> str:
    """Add news to an answer; the text that they bring."""
    answer.tokens += delta.tokens
    text = decoder.feed(delta.tokens, last=delta.finish is not None)
    answer.text += text
    answer.finish = delta.finish
    answer.cached_tokens = delta.cached_tokens
    answer.transfer_params = delta.transfer_params
    return text


def _raise_error(delta: Delta) -> None:
    if delta.finish in (Finish.ERROR, Finish.ABORT):
        raise RequestError(
            delta.error or "the request was aborted", status=500, kind="InternalServerError"
        )


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
