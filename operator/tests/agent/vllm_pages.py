"""A small real HTTP server that speaks the pages of vLLM which the agent reads. It is no engine.

Run as its own process, so that a test can kill it, start it again on the same port, or freeze it
with SIGSTOP. One line of JSON on standard input sets how it behaves from then on; it answers each
with one line on standard output, so that a test knows when the new behaviour is in force:

    health   200 | 503 | "hang"
    models   list of names | "hang" | "404" | "deep" (JSON nested beyond all depth)
    version  text
    metrics  text of the page, in which @PAGES@ counts the pages so far | null for the default page
    how      "plain" | "slow" (a piece now and then, without end) | "endless" (lines without end)
             | "one-line" (a line without end) | "gzip" | "cut" (half of it, then a reset)
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from typing import Any

from aiohttp import web

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.125
vllm:external_prefix_cache_queries_total{engine="0",model_name="tiny"} 1000.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 960.0
vllm:nixl_bytes_transferred_sum{engine="0",model_name="tiny"} 2.097152e+06
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 2.0
lmcache:num_remote_write_bytes_total{model_name="tiny",role="worker",worker_id="0"} 4096.0
"""

# 30 MB of page in 30 kB.
BOMB = gzip.compress(PAGE.encode() + b"\n" * 30_000_000, 1)


class Pages:
    """The behaviour in force and the handlers that show it."""

    def __init__(self) -> None:
        self.served = 0
        self.now: dict[str, Any] = {
            "health": 200,
            "models": ["tiny"],
            "version": "0.33.0",
            "metrics": None,
            "how": "plain",
        }

    async def health(self, _: web.Request) -> web.Response:
        if self.now["health"] == "hang":
            await asyncio.Event().wait()
        return web.Response(status=self.now["health"])

    async def models(self, _: web.Request) -> web.Response:
        models = self.now["models"]
        if models == "hang":
            await asyncio.Event().wait()
        if models == "404":
            return web.Response(status=404)
        if models == "deep":
            return web.Response(text="[" * 100_000, content_type="application/json")
        data = [{"id": name, "object": "model"} for name in models]
        return web.json_response({"object": "list", "data": data})

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.now["version"]})

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        page = PAGE if self.now["metrics"] is None else self.now["metrics"]
        self.served += 1
        page = page.replace("@PAGES@", str(self.served))
        how = self.now["how"]
        if how == "plain":
            return web.Response(text=page)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if how == "gzip":
            response.headers["Content-Encoding"] = "gzip"
        await response.prepare(request)
        if how == "gzip":
            await response.write(BOMB)
        elif how == "cut":
            await response.write(page.encode()[: len(page) // 2])
            assert request.transport is not None
            request.transport.abort()
        elif how == "slow":
            while True:
                await response.write(page.encode()[:40])
                await asyncio.sleep(0.2)
        else:
            piece = b"x" * 100_000 if how == "one-line" else page.encode() * 50
            while True:
                await response.write(piece)
        return response


async def serve(port: int) -> None:
    pages = Pages()
    app = web.Application()
    app.router.add_get("/health", pages.health)
    app.router.add_get("/v1/models", pages.models)
    app.router.add_get("/version", pages.version)
    app.router.add_get("/metrics", pages.metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    loop = asyncio.get_running_loop()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        pages.now.update(json.loads(line))
        sys.stdout.write("done\n")
        sys.stdout.flush()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
