"""The life of the front process: start, serve, drain or die."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from kvserving_engine_sim.assembly import Forked, build_core, fork_workers
from kvserving_engine_sim.metrics import registry
from kvserving_engine_sim.settings import Settings

_log = logging.getLogger(__name__)

# How long a dead engine still answers 503, for whoever watches /health.
_DEAD_SECONDS = 3.0
# For the last bytes of answers that are complete.
_FLUSH_SECONDS = 5.0


def run(settings: Settings) -> int:
    """Serve until SIGTERM (0) or until the engine is dead (1)."""
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="kvserving-engine-sim-"))
    metrics = registry.prepare_directory()
    forked: Forked | None = None
    try:
        listener = _bind(settings)
        forked = fork_workers(settings, scratch)
        return asyncio.run(_serve(settings, forked, listener, started))
    finally:
        if forked is not None:
            forked.pool.kill()
            forked.remove_sockets()
        for directory in filter(None, (scratch, metrics)):
            shutil.rmtree(directory, ignore_errors=True)


def _bind(settings: Settings) -> socket.socket:
    """The listening socket, before anything else: a port in use ends the process at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    return listener


async def _serve(
    settings: Settings, forked: Forked, listener: socket.socket, started: float
) -> int:
    # Imports prometheus_client, whose files belong to the process after the fork.
    from kvserving_engine_sim.front.app import Front  # noqa: PLC0415
    from kvserving_engine_sim.front.client import EngineClient  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    stop, dead = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await _ready_or_stopped(forked, stop)
    if stop.is_set():
        return 0
    core = build_core(forked)
    client = EngineClient(core)

    def failed(reason: str) -> None:
        _log.critical("the engine is dead: %s", reason)
        client.fail(reason)
        dead.set()

    core.start(emit=client.emit, failed=lambda reason: loop.call_soon_threadsafe(failed, reason))
    front = Front(settings, client)
    runner = await _listen(settings, front.application(), listener)
    _log.info("application startup complete in %.1f s", time.monotonic() - started)
    await _first(stop, dead)
    if dead.is_set():
        await asyncio.sleep(_DEAD_SECONDS)
        core.stop()
        return 1
    await _drain(settings, front, client, runner)
    core.stop()
    return 0


async def _listen(settings: Settings, application: Any, listener: socket.socket) -> Any:
    """Answer on the bound socket; what to clean up in the end."""
    from aiohttp import web  # noqa: PLC0415  after the fork

    runner = web.AppRunner(
        application,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=settings.keep_alive_seconds,
        shutdown_timeout=_FLUSH_SECONDS,
    )
    await runner.setup()
    await web.SockSite(runner, listener, backlog=2048).start()
    return runner


async def _ready_or_stopped(forked: Forked, stop: asyncio.Event) -> None:
    """Wait for the workers; a stop in the meantime is not kept waiting."""
    ready = asyncio.create_task(asyncio.to_thread(forked.pool.wait_ready))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if ready.done():
        await ready
    else:
        _log.info("stopped while the workers were starting")


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def _drain(settings: Settings, front: Any, client: Any, runner: Any) -> None:
    """Refuse what is new; let what runs end within the shutdown timeout, or cut it."""
    front.draining = True
    timeout = settings.shutdown_timeout
    if timeout and client.active:
        _log.info("draining %d requests for up to %d s", client.active, timeout)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.wait_idle(), timeout)
    if client.active:
        _log.warning("aborting %d requests", client.active)
    else:
        # Handlers that have all they need still write their last bytes.
        await runner.cleanup()
