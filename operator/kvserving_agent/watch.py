"""The loops that watch the engine, and what they know of its present life.

The probe loop asks /health (and now and then /v1/models, once /version) every 2 s and decides
readiness; the scrape loop reads /metrics every 10 s, and where the engine carries a store, a third
loop asks that for its state as often, or every 2 s until its tier is open; one more asks GraniKV.
They share one Snapshot, which is replaced and never changed. Whatever belongs to a life of the
engine is dropped when that life ends, a drain too: the start id is looked at before each probe, and
before and after each scrape. While the engine drains, its pages are read every second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from kvserving_agent import identity, latency, progress, series, states, traffic
from kvserving_agent.engine import Engine, Page
from kvserving_agent.facts import UNHEARD, Answer, Fault, Sample, Snapshot
from kvserving_agent.identity import StartId
from kvserving_agent.local import LocalError
from kvserving_agent.rundir import RunFolder
from kvserving_agent.series import Number
from kvserving_agent.states import StoreState
from kvserving_agent.store import Store
from kvserving_agent.sums import Sums, fold
from kvserving_agent.work import Work

DRAIN_PERIOD = 1.0
"""Seconds between scrapes while the engine drains."""

_log = logging.getLogger(__name__)


class Watcher:
    """Watches one engine. `known`, `work` and `sums` are for everyone to read."""

    def __init__(
        self,
        engine: Engine,
        *,
        table: Mapping[str, Number],
        listener: Callable[[], StartId | None],
        probe_period: float,
        scrape_period: float,
        stale_after: float,
        latencies: Mapping[str, str] | None = None,
        controls: Mapping[str, Store] | None = None,
        folder: RunFolder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self.controls = controls or {}
        self._table = table
        self.latencies = latencies or {}
        self.listener = listener
        self._probe_period = probe_period
        self._scrape_period = scrape_period
        self.stale_after = stale_after
        self.clock = clock
        self._folder = folder or RunFolder(None)
        self.known = Snapshot(begun=clock())
        self.work = Work()
        self.sums = Sums()
        self._last_start: StartId | None = None
        # Somebody listens: without an engine there is nothing to scrape, and no error in it.
        self._present = asyncio.Event()
        self._hurry = asyncio.Event()

    async def probe_forever(self) -> None:
        """The probe loop."""
        while True:
            await self.probe()
            await asyncio.sleep(self._probe_period)

    async def scrape_forever(self) -> None:
        """The scrape loop, while there is an engine: a slow scrape delays the next one."""
        while True:
            await self._present.wait()
            self._hurry.clear()
            draining = self.known.draining is not None
            due = self.clock() + (DRAIN_PERIOD if draining else self._scrape_period)
            await self.scrape()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), max(0.0, due - self.clock()))

    async def follow_forever(self, name: str) -> None:
        """A control port's loop, while there is an engine; without one it has nothing to do."""
        while name in self.controls:
            await self._present.wait()
            state = await self.ask_control(name)
            is_open = state is not None and state.closed is None
            await asyncio.sleep(self._scrape_period if is_open else self._probe_period)
        await asyncio.Event().wait()

    async def ask_control(self, name: str) -> StoreState | None:
        """Ask for a state once; None without an answer, or for one of a life that has ended."""
        before, asked = self.known.start, self.clock()
        try:
            state = await self.controls[name].state(asked)
        except LocalError as error:
            self._count(name, error)
            self._control(name, None, error.fault)
            return None
        if self.known.start != before:
            return None
        self.learn(name, state)
        return state

    def learn(self, name: str, state: StoreState) -> None:
        """Take what a control port just said, unless something later is known."""
        before = self.known.store if name == "store" else self.known.hot
        if before is None or before.at <= state.at:
            self._control(name, states.dated(before, state), None)
            if name == "store":
                self.sums = fold(self.sums, state)

    def _control(self, name: str, state: StoreState | None, fault: Fault | None) -> None:
        if name == "store":
            self.known = replace(self.known, store=state, store_error=fault)
        else:
            self.known = replace(self.known, hot=state, hot_error=fault)

    def identify(self) -> str | None:
        """The engine's start id as of now; None while nobody listens or it cannot be told."""
        self._identify()
        return self.known.start.value if self.known.start else None

    def stop(self) -> None:
        """Be not ready from now on; go on watching."""
        self.known = replace(self.known, stopping=True)

    def drain(self) -> None:
        """Let the engine go: not ready from now on. Nothing to do without one, or a second time."""
        start = self.identify()
        health = self.known.health
        if self.known.draining is not None or (health is not None and not health.good):
            return
        self.known = replace(self.known, draining=self.clock())
        if start is not None:
            self._folder.begin(start, self.clock())
        _log.info("draining", extra={"startId": start})
        self._hurry.set()

    async def probe(self) -> bool:
        """Ask for health and what is due besides; False when nobody listens any more."""
        if self.known.start is not None:
            self._identify()
        asked = self.clock()
        try:
            await self._engine.health()
        except LocalError as error:
            self._unhealthy(error, asked)
            if error.fault is Fault.REFUSED:
                self._present.clear()
                return False
            self._somebody_listens()
            return True
        self._somebody_listens()
        self._healthy(asked)
        models = self.known.models
        # Asked less often than health, since it passes through more of the engine.
        if models is None or not models.good or asked - models.at >= self.stale_after / 2:
            await self._ask_models()
            if self.known.version is None:
                await self._ask_version()
        return True

    async def scrape(self) -> None:
        """Read the numbers once."""
        self._identify()
        before, asked = self.known.start, self.clock()
        try:
            page = await self._engine.metrics()
            self._identify()
            if before is not None and self.known.start != before:
                raise LocalError(Fault.RESTARTED, "the engine restarted under the scrape")
        except LocalError as error:
            self._count("metrics", error)
            errors = self.known.scrape_errors + 1
            self.known = replace(self.known, scrape_errors=errors, last_error=error.fault)
            return
        self.work.scrapes += 1
        self.work.last_page = page
        if not self._by_socket():
            self._become(_start_in(page))
        sample = self._sample(page, asked)
        known, values = self.known, sample.values
        # Counted in scrapes, which come too often in a drain to tell a hung engine by.
        stall = None if known.draining is not None else progress.follow(known.stall, values, asked)
        seen = traffic.follow(known.traffic, values, asked)
        self.known = replace(known, sample=sample, stall=stall, traffic=seen, last_error=None)

    def _sample(self, page: Page, asked: float) -> Sample:
        found = {
            name: latency.histogram(page.buckets.get(family), page.series.get(f"{family}_sum"))
            for name, family in self.latencies.items()
        }
        return Sample(asked, series.numbers(page.series, self._table), found)

    def _somebody_listens(self) -> None:
        self._present.set()
        # Not before: to find out by /proc that nobody listens costs 19 ms, a refusal nothing.
        if self.known.start is None:
            self._identify()

    def _by_socket(self) -> bool:
        start = self.known.start
        return start is not None and start.source is identity.Source.SOCKET

    def _identify(self) -> None:
        """Look who listens. Where /proc never told, its silence means nothing."""
        found = self.listener()
        if found is not None or self._by_socket():
            self._become(found)

    def _become(self, start: StartId | None) -> None:
        """The life of the engine that is being watched is this one, None: there is none."""
        old = self.known
        if start == old.start:
            return
        if old.start is None:
            # What was learnt before the name was known was learnt of this life.
            noted = self._folder.since(start.value, self.clock()) if start else None
            since = noted if old.draining is None else old.draining
            self.known = replace(old, start=start, draining=since)
        else:
            self._forget(start)
        if start is None:
            return
        if self._last_start is not None and start != self._last_start:
            self.work.start_changes += 1
        self._last_start = start
        _log.info("engine started", extra={"startId": start.value, "source": start.source.value})

    def _forget(self, start: StartId | None) -> None:
        """Drop all that was known of the engine's previous life."""
        old = self.known
        if old.draining is not None:
            self._folder.forget()
        self.known = Snapshot(
            start=start,
            begun=self.clock(),
            scrape_errors=old.scrape_errors,
            last_error=old.last_error,
            stopping=old.stopping,
        )

    def _healthy(self, asked: float) -> None:
        old = self.known.health
        self.known = replace(self.known, health=Answer(asked, good=True))
        if old is None or not old.good:
            _log.info("engine is healthy")

    def _unhealthy(self, error: LocalError, asked: float) -> None:
        """A refusal and a wrong status are answers; silence only lets the last answer grow old."""
        self._count("health", error)
        old = self.known.health
        if error.fault is Fault.REFUSED:
            self._forget(None)
        if error.fault in UNHEARD:
            return
        self.known = replace(self.known, health=Answer(asked, good=False))
        if old is None or old.good:
            _log.info("engine is not healthy", extra={"reason": str(error)})

    async def _ask_models(self) -> None:
        asked = self.clock()
        try:
            names = await self._engine.models()
        except LocalError as error:
            self._count("models", error)
            if error.fault not in UNHEARD:
                self.known = replace(self.known, models=Answer(asked, good=False))
            return
        model = names[0] if names else None
        self.known = replace(self.known, models=Answer(asked, bool(names)), model=model)

    async def _ask_version(self) -> None:
        try:
            version = await self._engine.version()
        except LocalError as error:
            self._count("version", error)
            return
        self.known = replace(self.known, version=version)

    def _count(self, question: str, error: LocalError) -> None:
        first = not self.work.errors[question, error.fault]
        self.work.errors[question, error.fault] += 1
        if first and error.fault is not Fault.REFUSED:
            _log.warning("first error of its kind", extra={"question": question, "why": str(error)})


def _start_in(page: Page) -> StartId | None:
    """The start id by the page itself, where it tells when the process started."""
    times = page.series.get(series.START_TIME)
    return identity.from_start_time(times[0]) if times and times[0] is not None else None
