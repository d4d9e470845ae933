"""The agent's HTTP API. Open: `/readyz` and `/metrics`. All else needs the bearer token first.

Whoever comes without the token learns nothing, not even which paths exist: any path answers 401.
Every later handler is added to `_routes`, where the token check covers it unasked.

Beside it, on a Unix socket in a folder that only this pod's containers have, a drain can be asked
for without a token: whoever reaches it is in the pod, where the engine itself is open to him.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from kvserving_agent import drain, facts, series, tuning
from kvserving_agent.actuate import Actuator
from kvserving_agent.connections import Refused
from kvserving_agent.lives import Past
from kvserving_agent.metrics import CONTENT_TYPE, AgentMetrics
from kvserving_agent.reminder import Reminder
from kvserving_agent.settings import Settings
from kvserving_agent.token import TokenFile
from kvserving_agent.watch import Watcher

OPEN_PATHS = frozenset({"/readyz", "/metrics"})
DRAIN_PATH = "/v1/drain"
# Nothing that is sent to the agent is large.
MAX_BODY_BYTES = 64 * 1024
BODY_SECONDS = 5.0
"""How long a body may take to come."""


class Api:
    """The handlers; `app` is what a runner serves."""

    def __init__(
        self,
        *,
        settings: Settings,
        watcher: Watcher,
        tokens: TokenFile,
        reminder: Reminder,
        past: Past,
    ) -> None:
        self._settings = settings
        self._past = past
        self.watcher = watcher
        self._tokens = tokens
        self._reminder = reminder
        self._actuator = Actuator(watcher)
        self.refused = Refused()
        self._metrics = AgentMetrics(watcher, self.facts, self.refused, past)
        self.app = web.Application(middlewares=[self._guard()], client_max_size=MAX_BODY_BYTES)
        self.app.on_response_prepare.append(_sign)
        self.app.add_routes(self._routes())
        self.helper_app = web.Application(client_max_size=MAX_BODY_BYTES)
        self.helper_app.on_response_prepare.append(_sign)
        self.helper_app.add_routes([web.post(DRAIN_PATH, self._helper_drain)])

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics_page),
            web.get("/v1/facts", self._facts),
            web.put("/v1/tuning", self._tuning),
            web.post(DRAIN_PATH, self._drain),
        ]

    def _guard(self) -> Middleware:
        """The token check, in front of the routes."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path not in OPEN_PATHS and not self._authorised(request):
                self.refused.unauthorised += 1
                return web.json_response(
                    {"error": "unauthorised"}, status=401, headers={"WWW-Authenticate": "Bearer"}
                )
            return await handler(request)

        return guard

    def _authorised(self, request: web.Request) -> bool:
        scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._tokens.accepts(presented.strip())

    async def _readyz(self, _: web.Request) -> web.Response:
        watcher = self.watcher
        ready = facts.is_ready(watcher.known, watcher.clock(), watcher.stale_after)
        return web.Response(status=200 if ready else 503)

    async def _metrics_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def _facts(self, _: web.Request) -> web.Response:
        return _json(200, self.facts())

    def facts(self) -> dict[str, object]:
        """The answer of GET /v1/facts as of now."""
        watcher, settings = self.watcher, self._settings
        return facts.render(
            watcher.known,
            now=watcher.clock(),
            role=settings.role,
            engine_type=settings.engine_type,
            pod_uid=settings.pod_uid,
            stale_after=watcher.stale_after,
            table=series.table_of(settings.engine_type, stores=bool(settings.store_url)),
            latencies=watcher.latencies,
            stores=bool(settings.store_url),
            hots=bool(settings.hot_url),
            drain=None if watcher.known.draining is None else self._progress().data(),
            past=self._past,
        )

    async def _drain(self, _: web.Request) -> web.Response:
        """Begin to let the engine go, or go on with it; how far it is."""
        self.watcher.drain()
        return _json(200, self._progress().data())

    async def _helper_drain(self, _: web.Request) -> web.Response:
        """The same for the helper: once it hears that all is done, the kubelet goes on."""
        self.watcher.drain()
        found = self._progress()
        if found.phase is drain.Phase.DONE:
            self._reminder.stopping()
        return _json(200, found.data())

    def _progress(self) -> drain.Progress:
        settings, watcher = self._settings, self.watcher
        limits = drain.Limits(timeout=settings.drain_timeout, lease=settings.drain_lease)
        return drain.progress(watcher.known, watcher.clock(), limits, watcher.stale_after)

    async def _tuning(self, request: web.Request) -> web.Response:
        """Put settings in force; `If-Match` names the engine's start they were decided for."""
        try:
            wanted = tuning.parse(await _body(request))
        except tuning.InvalidError as error:
            return _json(422, {"field": error.field, "remedy": error.remedy})
        expected = request.headers.get("If-Match")
        answer = await self._actuator.put(wanted, expected.strip().strip('"') if expected else None)
        return _json(answer.status, answer.body)


async def _body(request: web.Request) -> bytes:
    """The body, read no further than it may be long."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.content.readexactly(tuning.MAX_BYTES + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    except TimeoutError:
        raise tuning.InvalidError(tuning.BODY, f"send it within {BODY_SECONDS:g} s") from None
    except (web.RequestPayloadError, HttpProcessingError, OSError):
        # Chunks that are none, or a client that has gone.
        raise tuning.InvalidError(tuning.BODY, "send all of it, as HTTP says") from None


def _json(status: int, answer: Mapping[str, object]) -> web.Response:
    text = json.dumps(answer, separators=(",", ":"), allow_nan=False)
    return web.Response(status=status, text=text, content_type="application/json")


async def _sign(_: web.Request, response: web.StreamResponse) -> None:
    """Name the agent instead of the library and its version."""
    response.headers["Server"] = "kvserving-agent"
