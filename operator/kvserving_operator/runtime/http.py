"""The operator's HTTP server: liveness, readiness and metrics.

Liveness fails when a worker is stuck beyond the time limit of a pass or a background task has died
without ending the process; a blocked event loop fails it by not answering. Readiness says that this
process could lead or leads: it does not distinguish leader and standby, so that both replicas of a
Deployment count.
"""

from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kvserving_operator.runtime import metrics

Check = Callable[[], Iterable[str]]
"""Returns one line per problem; nothing when all is well."""


class HttpServer:
    """Serves /healthz, /readyz and /metrics on one port."""

    def __init__(self, *, host: str | None, port: int, alive: Check, ready: Check) -> None:
        self._host = host
        self._port = port
        self._alive = alive
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Bind and serve; returns the port, which the kernel chooses when 0 was given."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the listening socket and open connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._alive())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._ready())

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(metrics.REGISTRY)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(problems: Iterable[str]) -> web.Response:
    lines = list(problems)
    if lines:
        return web.Response(status=503, text="\n".join(lines) + "\n")
    return web.Response(text="ok\n")
