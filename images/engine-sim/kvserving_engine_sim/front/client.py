"""The front's side of the engine core: requests go in, deltas come back on the event loop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from kvserving_engine_sim.core import Abort, Call, Core
from kvserving_engine_sim.front.protocol import Ask, RequestError
from kvserving_engine_sim.kv.model import Sampling
from kvserving_engine_sim.scheduler.request import Delta, Finish, Request
from kvserving_engine_sim.transfer.params import (
    ParamsError,
    RemotePrefill,
    parse_remote_prefill,
    wants_decode_elsewhere,
    wants_remote_prefill,
)

_log = logging.getLogger(__name__)


class EngineClient:
    """Use it from one event loop.

    A request whose `kv_transfer_params` cannot be followed counts as a failed transfer; under the
    policy "recompute" it is served all the same.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, asyncio.Queue[Delta]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.dead = ""

    @property
    def active(self) -> int:
        """Requests that are not answered yet."""
        return len(self._queues)

    async def wait_idle(self) -> None:
        """Return when no request is active."""
        await self._idle.wait()

    def emit(self, deltas: list[Delta]) -> None:
        """Take news from the core's thread."""
        self._loop.call_soon_threadsafe(self._deliver, deltas)

    def fail(self, reason: str) -> None:
        """The engine is dead: every request ends with an error. On the event loop."""
        self.dead = reason
        for name, news in self._queues.items():
            news.put_nowait(Delta(name, finish=Finish.ERROR, error=reason))

    async def generate(self, ask: Ask, answer_id: str) -> AsyncGenerator[Delta, None]:
        """Serve a request; it is aborted when the consumer stops before its end."""
        request = self._request(ask, answer_id)
        self._refuse_if_dead()
        news: asyncio.Queue[Delta] = asyncio.Queue()
        self._queues[request.request_id] = news
        self._idle.clear()
        self._core.post(request)
        finished = False
        try:
            while not finished:
                delta = await news.get()
                finished = delta.finish is not None
                yield delta
        finally:
            del self._queues[request.request_id]
            if not self._queues:
                self._idle.set()
            if not finished:
                self._core.post(Abort(request.request_id))

    async def reset_prefix_cache(self) -> bool:
        """Forget local KV; False, with nothing done, while requests hold some."""
        return bool(await self._call(self._core.reset_prefix_cache))

    async def _call(self, function: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def reply(result: Any) -> None:
            self._loop.call_soon_threadsafe(future.set_result, result)

        self._refuse_if_dead()
        self._core.post(Call(function, reply))
        return await future

    def _refuse_if_dead(self) -> None:
        if self.dead:
            raise RequestError(
                f"the engine is dead: {self.dead}", status=500, kind="InternalServerError"
            )

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            news = self._queues.get(delta.request_id)
            if news is not None:
                news.put_nowait(delta)

    def _request(self, ask: Ask, answer_id: str) -> Request:
        noise = 0
        if not ask.greedy:
            noise = 1 + (secrets.randbits(62) if ask.seed is None else ask.seed % (1 << 62))
        request = Request(
            request_id=f"{answer_id}-0-{secrets.token_hex(4)}",
            prompt=ask.prompt,
            max_tokens=ask.max_tokens,
            min_tokens=ask.min_tokens,
            sampling=Sampling(noise, ask.ignore_eos),
            stop=tuple(text.encode() for text in ask.stop if text),
            remote=self._remote(ask),
            hold_for_decode=wants_decode_elsewhere(ask.transfer_params),
        )
        request.times.arrived = time.monotonic()
        return request

    def _remote(self, ask: Ask) -> RemotePrefill | None:
        if ask.transfer_params is None or not wants_remote_prefill(ask.transfer_params):
            return None
        try:
            return parse_remote_prefill(ask.transfer_params)
        except ParamsError as error:
            text = f"kv_transfer_params cannot be followed: {error}"
            _log.warning("%s", text)
            if self._core.transfer_failed():
                return None
            raise RequestError(text, status=500, kind="InternalServerError") from None
