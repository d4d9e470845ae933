"""Forks the workers, hands them steps, notices when one of them is gone."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.workers.messages import Broken, Outcome, Ready, Step
from kvserving_engine_sim.workers.worker import Seat

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
# Beyond a step's own time: loads and stores of the tier, and the collectives' own limit of 60 s.
_STEP_SLACK_SECONDS = 120.0
_START_SECONDS = 120.0


class WorkersGoneError(Exception):
    """A worker ended or cannot go on: the engine is dead."""


class WorkerPool:
    """W worker processes. Fork before any thread starts; `execute` from one thread only."""

    def __init__(self, settings: Settings, caches: list[PagedKV], rendezvous: Path) -> None:
        self._settings = settings
        self._caches = caches
        self._rendezvous = rendezvous
        self._pipes: list[Connection] = []
        self._pids: list[int] = []

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return list(self._pids)

    def fork(self, serve: Callable[[Seat], None], tier_config: Any) -> None:
        """Start every rank; it runs `serve` and never returns from it."""
        for rank in range(self._settings.world_size):
            ours, theirs = multiprocessing.Pipe()
            parent = os.getpid()
            pid = os.fork()
            if not pid:
                _leave_with(parent)
                ours.close()
                for pipe in self._pipes:
                    pipe.close()
                cache, settings = self._caches[rank], self._settings
                _live(serve, Seat(settings, rank, cache, theirs, self._rendezvous, tier_config))
            theirs.close()
            self._pipes.append(ours)
            self._pids.append(pid)

    def wait_ready(self) -> None:
        """Return when every rank is up."""
        self._collect(Ready, _START_SECONDS)

    def execute(self, step: Step) -> list[Outcome]:
        """Let every rank do a step; what each one did, by rank."""
        for pipe in self._pipes:
            try:
                pipe.send(step)
            except OSError as error:
                raise WorkersGoneError(f"a worker does not listen: {error}") from None
        return self._collect(Outcome, step.seconds + _STEP_SLACK_SECONDS)

    def watch(self, gone: Callable[[str], None]) -> None:
        """Call `gone` from another thread as soon as a worker ends, also while all are idle."""
        descriptors = {os.pidfd_open(pid): (rank, pid) for rank, pid in enumerate(self._pids)}

        def run() -> None:
            for descriptor in wait(list(descriptors)):
                rank, pid = descriptors[descriptor]  # type: ignore[index]
                gone(f"worker {rank} (pid {pid}) ended")

        threading.Thread(target=run, name="worker-watch", daemon=True).start()

    def kill(self) -> None:
        """End all workers now: LMCache's own shutdown can wait for ever."""
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue
        self._pids.clear()

    def _collect(self, kind: type, seconds: float) -> list[Any]:
        deadline = time.monotonic() + seconds
        answers: dict[int, Any] = {}
        while len(answers) < len(self._pipes):
            left = deadline - time.monotonic()
            open_pipes = [p for n, p in enumerate(self._pipes) if n not in answers]
            readable = wait(open_pipes, timeout=max(0.0, left))
            if not readable and left <= 0:
                missing = [n for n in range(len(self._pipes)) if n not in answers]
                raise WorkersGoneError(f"no answer from ranks {missing} in {seconds:.0f} s")
            self._receive(readable, answers, kind)
        return [answers[rank] for rank in range(len(self._pipes))]

    def _receive(self, readable: list[Any], answers: dict[int, Any], kind: type) -> None:
        for pipe in readable:
            rank = self._pipes.index(pipe)
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                raise WorkersGoneError(f"worker {rank} (pid {self._pids[rank]}) ended") from None
            if isinstance(answer, Broken):
                raise WorkersGoneError(f"worker {answer.rank} failed: {answer.error}")
            if not isinstance(answer, kind):
                raise WorkersGoneError(f"worker {rank} is out of step")
            answers[rank] = answer


def _live(serve: Callable[[Seat], None], seat: Seat) -> NoReturn:
    """The forked process; it ends here, whatever happens."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serve(seat)
    except EOFError:
        code = 0
    except BaseException as error:  # noqa: BLE001  the last line of defence of a process
        _log.exception("worker %d cannot go on", seat.rank)
        try:
            seat.pipe.send(Broken(seat.rank, f"{type(error).__name__}: {error}"))
        except OSError:
            _log.info("worker %d: the engine is gone", seat.rank)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: the threads of LMCache and of gloo may never end.
        os._exit(code)


def _leave_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
