"""The agent's HTTP API. Open: `/readyz` and `/metrics`. All else needs the bearer token first.

Whoever comes without the token learns nothing, not even which paths exist: any path answers 401.
Later parts (tuning, drain) are handlers added to `_routes`; the token check covers them unasked.
"""

from __future__ import annotations

import json

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kvserving_agent import facts
from kvserving_agent.metrics import CONTENT_TYPE, AgentMetrics
from kvserving_agent.settings import Settings
from kvserving_agent.token import TokenFile
from kvserving_agent.watch import Watcher

OPEN_PATHS = frozenset({"/readyz", "/metrics"})
# Nothing that is sent to the agent is large.
MAX_BODY_BYTES = 64 * 1024


class Api:
    """The handlers; `app` is what a runner serves."""

    def __init__(self, *, settings: Settings, watcher: Watcher, tokens: TokenFile) -> None:
        self._settings = settings
        self._watcher = watcher
        self._tokens = tokens
        self._refused = 0
        self._metrics = AgentMetrics(watcher, lambda: self._refused)
        self.app = web.Application(middlewares=[self._guard()], client_max_size=MAX_BODY_BYTES)
        self.app.on_response_prepare.append(_sign)
        self.app.add_routes(self._routes())

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics_page),
            web.get("/v1/facts", self._facts),
        ]

    def _guard(self) -> Middleware:
        """The token check, in front of the routes."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path not in OPEN_PATHS and not self._authorised(request):
                self._refused += 1
                return web.json_response(
                    {"error": "unauthorised"}, status=401, headers={"WWW-Authenticate": "Bearer"}
                )
            return await handler(request)

        return guard

    def _authorised(self, request: web.Request) -> bool:
        scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._tokens.accepts(presented.strip())

    async def _readyz(self, _: web.Request) -> web.Response:
        watcher = self._watcher
        ready = facts.is_ready(watcher.known, watcher.clock(), watcher.stale_after)
        return web.Response(status=200 if ready else 503)

    async def _metrics_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    async def _facts(self, _: web.Request) -> web.Response:
        watcher, settings = self._watcher, self._settings
        answer = facts.render(
            watcher.known,
            now=watcher.clock(),
            role=settings.role,
            engine_type=settings.engine_type,
            pod_uid=settings.pod_uid,
            stale_after=watcher.stale_after,
            table=facts.NUMBERS[settings.engine_type],
            stores=bool(settings.store_url),
        )
        text = json.dumps(answer, separators=(",", ":"), allow_nan=False)
        return web.Response(text=text, content_type="application/json")


async def _sign(_: web.Request, response: web.StreamResponse) -> None:
    """Name the agent instead of the library and its version."""
    response.headers["Server"] = "kvserving-agent"
