"""The process that an agent's container starts, and that starts the agent.

An engine's pod is in service only while each of its containers runs: an agent that dies would take
its engine out of service until the kubelet has started the container anew, which may wait minutes
before it does. So the agent is a child of this process, which starts another one at once, and the
container goes on. It is small (it imports no HTTP library), holds the listening sockets, and does
nothing but wait:

- for the end of the agent: another life begins, at once or, where they die again and again, after a
  pause (lives.py). What the last one knew of the engine is handed on (handover.py).
- for a pulse that stops (a loop that hangs, a process that is frozen): it is killed, soon enough
  that the kubelet's readiness probe fails once at most.
- for memory that comes near the container's limit: it is ended before all of the container is.
- for SIGTERM and SIGINT: passed on; with the agent's end all ends.

An agent that ends before any life of it served has a fault that no further life would heal (a
setting, an image): this process ends with its status, and the kubelet and the operator tell. So it
does once MOST_SILENT lives in a row have not served: the pod is out of service by its probe then,
and the kubelet's count and its back-off are where people look. Lives that serve, however short, go
on: the engine's service is worth more than the telling.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvserving_agent import footprint, lives
from kvserving_agent.handover import Handover
from kvserving_agent.lives import End, Past

NAME = "kvs-supervisor"
"""Of the process, as `ps -o comm` shows it: at most 15 characters."""
LOOK_SECONDS = 1.0
"""How often the pulse is looked at, and how often it beats."""
STILL_LOOKS = 4
"""Looks without a pulse that make an agent hung: they and another life's start are over before a
second readiness probe, of 5 s each, can fail. Not a time: where this process is late too, the
machine was frozen. A look at which the agent mostly waited for a core does not count."""
START_LOOKS = 60
"""The same for one that has not served yet."""
STOP_LOOKS = 10
"""The same once the container is to end: the last answers may take 2 s a listener, and no probe
counts any more."""
MOST_SILENT = 10
"""Lives in a row that end before they serve, after one that did: half a minute with the pauses."""

_TOLD = frozenset({signal.SIGTERM, signal.SIGINT})
_WAITED = _TOLD | {signal.SIGCHLD}
_PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Life:
    """What an agent is given by its supervisor."""

    past: Past
    sockets: Sequence[socket.socket]
    handover: Handover


Body = Callable[[Life], int]
"""An agent: runs until it is told to stop, and returns its exit status."""


class Supervisor:
    """Runs `body` in a child, again and again, while it has at most `most` bytes of memory.

    `sockets` are kept open.
    """

    def __init__(
        self, body: Body, sockets: Sequence[socket.socket], most: float | None = None
    ) -> None:
        self._body = body
        self._sockets = sockets
        self._handover = Handover()
        self._most = most
        self._stopping = False
        self._looks = 0

    def run(self) -> int:
        """Until told to stop, or until nothing will help; the exit status."""
        # Whoever started this process may have it ignored: no end of a child would be told.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        _rename(NAME)
        # Before any life has served there is nothing to go on with.
        past, soon, silent = lives.FIRST, 0, MOST_SILENT - 1
        while True:
            end = self._live(Life(past, self._sockets, self._handover))
            silent = 0 if end.served else silent + 1
            if self._stopping or silent >= MOST_SILENT:
                return self._last(end)
            soon = soon + 1 if end.seconds < lives.SOON_SECONDS else 0
            wait = lives.pause(soon, served=end.served)
            _log.error("the agent ended", extra={**_told(end, past), "againIn": wait})
            if wait and signal.sigtimedwait(_TOLD, wait) is not None:
                return 0
            past = past.followed(end)

    def _last(self, end: End) -> int:
        """What remains to be said when nothing is started any more."""
        if self._stopping and end.status in {0, *(128 + number for number in _TOLD)}:
            return 0
        _log.critical("the agent ended and is not started again", extra=_told(end))
        return end.status

    def _live(self, life: Life) -> End:
        """One life, from its begin to its end."""
        self._handover.begin()
        began = time.monotonic()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be(self._body, life, parent)
        why = ""
        self._looks = 0
        while (status := _reap(pid)) is None:
            before, turn = self._handover.pulse, footprint.turn(pid)
            got = signal.sigtimedwait(_WAITED, LOOK_SECONDS)
            if got is not None and got.si_signo in _TOLD:
                self._stop(pid, got.si_signo)
            elif got is None:
                starved = footprint.starved(turn, footprint.turn(pid), LOOK_SECONDS)
                self._looks = 0 if self._handover.pulse != before else self._looks + (not starved)
                why = why or self._trouble(pid)
                if why:
                    os.kill(pid, signal.SIGKILL)
        seconds, served = time.monotonic() - began, self._handover.pulse > 0
        return lives.ended(status, seconds=seconds, served=served, why=why)

    def _stop(self, pid: int, number: int) -> None:
        """All is to end: the agent with its own time from now on."""
        self._stopping, self._looks = True, 0
        self._handover.stop()
        os.kill(pid, number)

    def _trouble(self, pid: int) -> str:
        """Why an agent that runs must be ended; empty: it is well."""
        most = STILL_LOOKS if self._handover.pulse else START_LOOKS
        if self._looks >= (STOP_LOOKS if self._stopping else most):
            return lives.HUNG
        if self._most is not None and footprint.resident(pid) > self._most:
            return lives.MEMORY
        return ""


def _be(body: Body, life: Life, parent: int) -> None:
    """Become the agent; does not return."""
    status = 1
    try:
        _die_with(parent)
        _rename("kvserving-agent")
        for number in _TOLD:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)
        status = body(life)
    except Exception:  # noqa: BLE001 - whatever it is, the process ends here
        _log.exception("the agent failed")
    finally:
        logging.shutdown()
        # Not sys.exit: it would wait for threads that still look up a name.
        os._exit(status)


def _die_with(parent: int) -> None:
    """An agent must not outlive its supervisor: it would keep the port from the next one."""
    import ctypes  # noqa: PLC0415 - the supervisor has no use for it

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PARENT_DEATH, int(signal.SIGKILL), 0, 0, 0):
        # With the container all of its processes end; without one, nobody ends this one.
        why = os.strerror(ctypes.get_errno())
        _log.error("the agent would outlive its supervisor: prctl failed", extra={"why": why})
    if os.getppid() != parent:
        os._exit(1)


def _reap(pid: int) -> int | None:
    """The wait status of `pid` once it ended; whatever else ended is reaped too."""
    found = None
    try:
        while (got := os.waitpid(-1, os.WNOHANG))[0]:
            if got[0] == pid:
                found = got[1]
    except ChildProcessError:
        pass
    return found


def _rename(name: str) -> None:
    try:
        with open("/proc/self/comm", "w") as comm:  # noqa: PTH123 - pathlib is not needed here
            comm.write(name)
    except OSError as error:
        _log.debug("the process keeps its name", extra={"why": str(error)})


def _told(end: End, past: Past | None = None) -> dict[str, object]:
    lived = {} if past is None else {"life": past.lives}
    return {**lived, "reason": end.reason, "seconds": round(end.seconds, 1), "served": end.served}
