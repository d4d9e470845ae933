"""Carries settings to the control ports in the engine, and reads back what is in force.

Every port is asked for its state first, so that a silent one keeps the others as they are; GraniKV
is sent to before the store, because only it knows its own limits. One change at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kvserving_agent.local import LocalError
from kvserving_agent.states import StoreState
from kvserving_agent.store import Outcome, Store
from kvserving_agent.tuning import Tuning
from kvserving_agent.watch import Watcher

TIMEOUT_SECONDS = 8.0
"""For all of it, the wait for an earlier change included: whoever asks waits little longer. On
loopback it takes milliseconds."""

_log = logging.getLogger(__name__)

Json = dict[str, object]


@dataclass(frozen=True)
class Answer:
    """What the agent answers: a status and a JSON object."""

    status: int
    body: Json


class _StopError(Exception):
    """It cannot go on; what to answer."""

    def __init__(self, status: int, **body: object) -> None:
        super().__init__(status)
        self.answer = Answer(status, body)


class Actuator:
    """Puts settings in force in the engine that `watcher` watches."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = asyncio.Lock()

    async def put(self, wanted: Tuning, expected: str | None) -> Answer:
        """Put settings in force.

        Args:
            wanted: What to send where.
            expected: The engine's start id that the decision was made for; None: whichever runs.

        Returns:
            200 with what is in force, 409 for another start of the engine, 422 where the port
            refuses a setting, 503 with the reason. `sent` of the latter names the ports that may
            have taken their settings nevertheless.
        """
        sent: list[str] = []
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), self._lock:
                return await self._put(wanted, expected, sent)
        except _StopError as stop:
            answer = stop.answer
        except TimeoutError:
            what = f"the control ports took more than {TIMEOUT_SECONDS:g} s, or a change before"
            answer = Answer(503, {"reason": "Timeout", "message": what})
        # As one value: the keys of a log line are its own.
        why = {"status": answer.status, **answer.body}
        _log.warning("tuning is not in force", extra={"answer": why})
        return Answer(answer.status, {**answer.body, "sent": sent})

    async def _put(self, wanted: Tuning, expected: str | None, sent: list[str]) -> Answer:
        start = self._watcher.identify()
        if expected is not None and expected != start:
            raise _restarted("engine", start)
        targets: list[tuple[str, Mapping[str, object]]] = []
        for name, settings in (("hot", wanted.hot), ("store", wanted.store)):
            if settings is not None:
                targets.append((name, settings))
        before = {name: await self._state(name) for name, _ in targets}
        for name, settings in targets:
            _check(before[name], settings)
        for name, settings in targets:
            sent.append(name)
            await self._send(name, settings, before[name].start, sent)
        body: Json = {"startId": start, "store": None, "hot": None}
        for name, _ in targets:
            state = await self._state(name)
            if state.start != before[name].start:
                raise _restarted(name, state.start)
            self._watcher.learn(name, state)
            body[name] = {"startId": state.start, "settings": state.settings, "since": state.since}
        if self._watcher.identify() != start:
            raise _restarted("engine", self._watcher.identify())
        _log.info("tuning is in force", extra={"settings": {n: dict(s) for n, s in targets}})
        return Answer(200, body)

    def _port(self, name: str) -> Store:
        port = self._watcher.controls.get(name)
        if port is None:
            what = f"this agent is told of no control port {name} in its engine"
            raise _StopError(503, reason="NoControl", control=name, message=what)
        return port

    async def _state(self, name: str) -> StoreState:
        port = self._port(name)
        try:
            return await port.state(self._watcher.clock())
        except LocalError as error:
            raise _silent(name, error) from None

    async def _send(
        self, name: str, settings: Mapping[str, object], start: str, sent: list[str]
    ) -> None:
        try:
            outcome = await self._port(name).put(settings, start)
        except LocalError as error:
            raise _silent(name, error) from None
        if outcome.status == 200:
            return
        sent.remove(name)
        raise _refusal(name, outcome)


def _check(state: StoreState, settings: Mapping[str, object]) -> None:
    """What the store would refuse, before anything is sent to anybody."""
    if settings.get("mode") == "Sync" and "SyncLoading" not in state.capabilities:
        remedy = "Sync needs the capability SyncLoading; send Async or Auto"
        raise _StopError(422, field="mode", remedy=remedy)


def _refusal(name: str, outcome: Outcome) -> _StopError:
    if outcome.status == 409:
        return _restarted(name, outcome.start)
    if outcome.status == 422:
        return _StopError(422, control=name, field=outcome.field, remedy=outcome.remedy)
    what = f"control port {name} answered {outcome.status}"
    return _StopError(503, reason="Status", control=name, message=what)


def _restarted(name: str, start: str | None) -> _StopError:
    what = "the engine started anew: read /v1/facts, decide anew and send again"
    return _StopError(409, reason="Restarted", control=name, startId=start, message=what)


def _silent(name: str, error: LocalError) -> _StopError:
    return _StopError(503, reason=error.fault.value, control=name, message=str(error)[:256])
