"""`kvserving-agent serve`: the parts put together, their life and their end.

The agent is a native sidecar: the kubelet stops it after the engine, so that SIGTERM normally finds
the engine gone, and the agent leaves at once. Should the engine still listen (a kubelet that stops
all at once, an agent stopped by hand), the pod is not ready from that moment, but facts go on being
served, since the operator drains by them: until nobody listens on the engine's port, a second
signal, or `stop_timeout`. A signal that did not come by its supervisor ends this life at once, and
the next one goes on: the pod is not to leave service by it. A loop that dies ends the process with
status 1; the next life comes to the same start id.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from functools import partial

from aiohttp import ClientSession, web

from kvserving_agent import connections, identity, listening, series, story, takeover
from kvserving_agent.engine import Engine
from kvserving_agent.local import new_session
from kvserving_agent.reminder import Reminder
from kvserving_agent.rundir import RunFolder
from kvserving_agent.server import Api
from kvserving_agent.settings import EngineType, Role, Settings
from kvserving_agent.store import Store
from kvserving_agent.supervisor import LOOK_SECONDS, Life
from kvserving_agent.token import TokenFile
from kvserving_agent.watch import Watcher

# How soon a stopping agent looks again whether the engine is gone.
LEAVING_PERIOD = 0.5
# How long answers under way may take once the agent leaves.
LAST_ANSWERS_SECONDS = 2.0
# How long an agent may listen to its engine before it answers anybody else.
FIRST_LOOK_SECONDS = 2.0

# Where the engine states its version. SGLang's page asks its schedulers too; it is asked once.
VERSION_PATHS = {EngineType.VLLM: "/version", EngineType.SGLANG: "/server_info"}

_log = logging.getLogger(__name__)


async def serve(settings: Settings, life: Life) -> int:
    """Watch and answer until told to stop; the exit status."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    folder = RunFolder(settings.run_folder)
    async with new_session() as session:
        watcher = _watcher(settings, session, folder)
        reminder = Reminder(watcher, settings.engine_port, settings.remind_after)
        tokens = TokenFile(settings.token_file)
        api = Api(
            settings=settings, watcher=watcher, tokens=tokens, reminder=reminder, past=life.past
        )
        options = connections.options(api.refused)
        runners = [
            web.AppRunner(app, shutdown_timeout=LAST_ANSWERS_SECONDS, **options)
            for app in (api.app, api.helper_app)
        ]
        for runner in runners:
            await runner.setup()
        servers: list[asyncio.Server] = []
        try:
            await _look_first(watcher, life)
            servers = await _listen(runners[0], life)
            await _open(runners[1], folder)
            told = {"role": settings.role, "port": settings.port, "life": life.past.lives}
            _log.info("agent started", extra=told)
            return await _watch(api, reminder, signals, settings.stop_timeout, life)
        finally:
            for server in servers:
                server.close()
            for runner in runners:
                await runner.cleanup()


async def _look_first(watcher: Watcher, life: Life) -> None:
    """Know the engine before the first answer: it would be "not ready" although the engine is.

    Whoever asks meanwhile is in the queue of the sockets.
    """
    watcher.identify()
    # By the start that was just found, not by a second look: another engine may listen by then.
    watcher.known = takeover.taken(life.handover.kept(), watcher.known.start, watcher.known)
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LOOK_SECONDS):
            await watcher.probe()


def _watcher(settings: Settings, session: ClientSession, folder: RunFolder) -> Watcher:
    table = series.table_of(settings.engine_type, stores=bool(settings.store_url))
    latencies = dict(series.LATENCIES[settings.engine_type])
    if settings.role is Role.PREFILL:
        latencies = {name: latencies[name] for name in series.PREFILL_LATENCIES}
    sums = {f"{family}_sum" for family in latencies.values()}
    wanted = {number.metric for number in table.values()} | {series.START_TIME} | sums
    urls = {"store": settings.store_url, "hot": settings.hot_url}
    return Watcher(
        Engine(
            session,
            settings.engine_url,
            wanted,
            histograms=latencies.values(),
            version_path=VERSION_PATHS[settings.engine_type],
        ),
        controls={name: Store.at(session, url) for name, url in urls.items() if url},
        latencies=latencies,
        table=table,
        folder=folder,
        listener=partial(identity.from_listener, settings.engine_port),
        probe_period=settings.probe_period,
        scrape_period=settings.scrape_period,
        stale_after=settings.stale_after,
    )


async def _listen(runner: web.AppRunner, life: Life) -> list[asyncio.Server]:
    if runner.server is None:
        raise RuntimeError("the runner is not set up")
    factory = connections.bounded(runner.server)
    loop = asyncio.get_running_loop()
    return [
        await loop.create_server(factory, sock=each, backlog=listening.BACKLOG)
        for each in life.sockets
    ]


async def _beat_forever(watcher: Watcher, life: Life) -> None:
    """Show the supervisor that this loop turns, and leave with it what the next life goes on by."""
    while True:
        life.handover.keep(takeover.left(watcher.known))
        life.handover.beat()
        await asyncio.sleep(LOOK_SECONDS / 2)


async def _open(runner: web.AppRunner, folder: RunFolder) -> None:
    """Let the helper of the engine's container in; without it the engine ends without a drain."""
    if folder.socket is None:
        return
    try:
        folder.install()
        await web.UnixSite(runner, folder.socket).start()
        # The engine's container may run as somebody else, as a podTemplate says.
        folder.socket.chmod(0o666)
    except OSError as error:
        _log.error("nobody can ask for a drain", extra={"reason": str(error)})


async def _watch(
    api: Api, reminder: Reminder, signals: asyncio.Queue[int], stop_timeout: float, life: Life
) -> int:
    """Run the loops until a signal comes and the engine is gone, or until one of them dies."""
    watcher = api.watcher
    probing = asyncio.create_task(watcher.probe_forever())
    scraping = asyncio.create_task(watcher.scrape_forever())
    following = [asyncio.create_task(watcher.follow_forever(name)) for name in watcher.controls]
    reminding = asyncio.create_task(reminder.remind_forever())
    telling = asyncio.create_task(story.tell_forever(api.facts))
    beating = asyncio.create_task(_beat_forever(watcher, life))
    told = asyncio.create_task(signals.get())
    tasks = {probing, scraping, *following, reminding, telling, beating, told}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if told not in done:
            for task in done:
                _log.critical("a loop died", exc_info=task.exception())
            return 1
        name = signal.Signals(told.result()).name
        if not life.handover.stopping:
            _log.info("another life was asked for", extra={"signal": name})
            return 0
        watcher.stop()
        probing.cancel()
        _log.info("stopping", extra={"signal": name})
        why = await _linger(watcher, signals, stop_timeout)
        _log.info("stopped", extra={"reason": why})
        return 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _linger(watcher: Watcher, signals: asyncio.Queue[int], stop_timeout: float) -> str:
    """Return when there is no reason to answer any longer, with that reason."""
    try:
        async with asyncio.timeout(stop_timeout):
            while await watcher.probe():
                try:
                    await asyncio.wait_for(signals.get(), LEAVING_PERIOD)
                except TimeoutError:
                    continue
                return "second signal"
            return "the engine is gone"
    except TimeoutError:
        return "the time to stop is over"
