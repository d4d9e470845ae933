"""The engine core: one thread that schedules, lets the workers step, and tells the front.

Everything reaches it through its inbox; everything it has to say leaves through `emit`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvserving_engine_sim.kv.model import EOS
from kvserving_engine_sim.metrics.engine import EngineMetrics
from kvserving_engine_sim.scheduler.blocks import BlockPool
from kvserving_engine_sim.scheduler.request import Delta, Finish, LoadStage, Phase, Request
from kvserving_engine_sim.scheduler.scheduler import Scheduler
from kvserving_engine_sim.scheduler.stats import Stats
from kvserving_engine_sim.transfer.nixl import Nixl
from kvserving_engine_sim.transfer.outcome import Received
from kvserving_engine_sim.workers.messages import Outcome, Sequence, Step
from kvserving_engine_sim.workers.pool import WorkerPool, WorkersGoneError

_log = logging.getLogger(__name__)

# While requests wait for an asynchronous lookup, which announces nothing.
_POLL_SECONDS = 0.005
# So that leases expire and gauges stay true without traffic.
_IDLE_SECONDS = 1.0


@dataclass(frozen=True)
class Abort:
    """Forget a request."""

    request_id: str


@dataclass(frozen=True)
class Gone:
    """A worker ended."""

    reason: str


@dataclass(frozen=True)
class Call:
    """Run something on the core's thread and hand its result to `reply`."""

    function: Callable[[], Any]
    reply: Callable[[Any], None]


Message = Request | Abort | Received | Gone | Call
Inbox = queue.SimpleQueue[Message]


class Core:
    """Owns the scheduler and the blocks."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        pool: WorkerPool,
        blocks: BlockPool,
        scheduler: Scheduler,
        nixl: Nixl | None,
        metrics: EngineMetrics,
        max_model_len: int,
        recompute_failed_loads: bool,
    ) -> None:
        self._inbox = inbox
        self._pool = pool
        self._blocks = blocks
        self._scheduler = scheduler
        self._nixl = nixl
        self._metrics = metrics
        self._max_model_len = max_model_len
        self._recompute = recompute_failed_loads
        self._requests: dict[str, Request] = {}
        self._orphans: dict[str, Request] = {}
        self._news: list[Delta] = []
        self._stopping = False

    def start(self, *, emit: Callable[[list[Delta]], None], failed: Callable[[str], None]) -> None:
        """Serve. `emit` gets the news, `failed` is called once, when the engine is dead."""
        if self._nixl is not None:
            self._nixl.start()
        arguments = (emit, failed)
        threading.Thread(target=self._run, args=arguments, name="engine-core", daemon=True).start()
        self._pool.watch(lambda reason: self._inbox.put(Gone(reason)))

    def post(self, message: Message) -> None:
        """Hand something to the core, from any thread."""
        self._inbox.put(message)

    def transfer_failed(self) -> bool:
        """Count a transfer that cannot start; whether its request is served all the same."""
        if self._nixl is not None:
            self._nixl.metrics.failed()
        return self._recompute

    def reset_prefix_cache(self) -> bool:
        """Forget local KV; False while blocks are held. On the core's thread (`Call`)."""
        return self._blocks.reset()

    def stop(self) -> None:
        """The process ends: what breaks from now on is not worth a word."""
        self._stopping = True

    def _run(self, emit: Callable[[list[Delta]], None], failed: Callable[[str], None]) -> None:
        reason = ""
        try:
            while not self._stopping:
                self._take_messages()
                self._tend_transfers()
                step = self._scheduler.schedule(time.monotonic())
                if step.sequences or step.unpin:
                    self._scheduler.stepped(sum(len(s.tokens) for s in step.sequences))
                    outcomes = self._pool.execute(step)
                    self._scheduler.stepped(0)
                    self._apply(step, outcomes)
                self._publish(emit)
        except WorkersGoneError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  the thread's last line of defence: it is told
            if self._stopping:
                return
            _log.exception("the engine core cannot go on")
            reason = f"{type(error).__name__}: {error}"
        if not self._stopping:
            failed(reason)

    def _take_messages(self) -> None:
        """Handle what is there; wait for something while there is nothing to do."""
        timeout = 0.0
        if not self._scheduler.running:
            waiting = [r for r in self._scheduler.waiting if r.phase is Phase.WAITING]
            timeout = _POLL_SECONDS if waiting else self._idle_seconds()
        try:
            self._handle(self._inbox.get(timeout=timeout) if timeout else self._inbox.get_nowait())
            while True:
                self._handle(self._inbox.get_nowait())
        except queue.Empty:
            return

    def _idle_seconds(self) -> float:
        expiry = self._nixl.next_expiry() if self._nixl else None
        return _IDLE_SECONDS if expiry is None else min(_IDLE_SECONDS, max(expiry, 0.001))

    def _handle(self, message: Message) -> None:
        if isinstance(message, Request):
            self._requests[message.request_id] = message
            self._scheduler.add(message)
        elif isinstance(message, Abort):
            request = self._requests.get(message.request_id)
            if request is not None:
                self._end(request, Finish.ABORT)
        elif isinstance(message, Received):
            self._loaded(message)
        elif isinstance(message, Call):
            message.reply(message.function())
        elif isinstance(message, Gone):
            raise WorkersGoneError(message.reason)

    def _loaded(self, received: Received) -> None:
        """A background read ended, well or not."""
        if self._nixl is not None:
            self._nixl.metrics.received(received)
        if received.error:
            _log.warning("%s", received.error)
        orphan = self._orphans.pop(received.request_id, None)
        if orphan is not None:
            self._scheduler.release(orphan)
            return
        request = self._requests[received.request_id]
        request.phase = Phase.WAITING
        if not received.error:
            request.load_stage = LoadStage.COMPLETED_WAITING
            there = request.local_cached + request.external_cached
            # The last token is always computed: its output is the first new token.
            request.computed = min(there, request.length - 1)
            self._scheduler.publish(request)
        elif self._recompute:
            request.load_stage, request.external_cached = None, 0
            request.computed = request.local_cached
        else:
            self._end(request, Finish.ERROR, received.error)

    def _tend_transfers(self) -> None:
        if self._nixl is None:
            return
        waiting = [r.remote for r in self._scheduler.waiting if r.remote is not None]
        for lease in self._nixl.tick(waiting):
            self._blocks.release(lease.blocks)

    def _apply(self, step: Step, outcomes: list[Outcome]) -> None:
        now = time.monotonic()
        for sequence in step.sequences:
            request = self._requests.get(sequence.request_id)
            if request is None:
                continue
            valid = [
                outcome.failed_loads[sequence.request_id]
                for outcome in outcomes
                if sequence.request_id in outcome.failed_loads
            ]
            if valid:
                self._load_failed(request, min(valid))
                continue
            self._scheduler.computed(request, sequence)
            if sequence.sample:
                self._sampled(request, sequence, outcomes, now)

    def _load_failed(self, request: Request, valid: int) -> None:
        if self._recompute:
            _log.warning(
                "request %s: recomputing from token %d, its KV was not loaded",
                request.request_id,
                valid,
            )
            self._scheduler.roll_back(request, valid)
        else:
            self._end(request, Finish.ERROR, "KV could not be loaded (kv_load_failure_policy fail)")

    def _sampled(
        self, request: Request, sequence: Sequence, outcomes: list[Outcome], now: float
    ) -> None:
        token = outcomes[0].tokens[sequence.request_id]
        request.output.append(token)
        times, stats = request.times, self._scheduler.stats
        stats.generated_tokens += 1
        if not times.first_token:
            times.first_token = now
            stats.first_tokens.append(request)
        else:
            stats.token_gaps.append(now - times.last_token)
        times.last_token = now
        finish = request.ended(self._max_model_len, EOS)
        if finish:
            self._end(request, finish, tokens=(token,))
        else:
            self._news.append(
                Delta(request.request_id, (token,), cached_tokens=request.reported_cached)
            )

    def _end(
        self, request: Request, finish: Finish, error: str = "", tokens: tuple[int, ...] = ()
    ) -> None:
        loading = request.phase is Phase.LOADING
        self._scheduler.remove(request)
        del self._requests[request.request_id]
        hold = self._scheduler.finished(request, finish)
        if loading:
            # Bytes may still be arriving in its blocks.
            self._orphans[request.request_id] = request
        else:
            self._scheduler.release(request, keep=hold.blocks if hold else ())
        request.times.ended = time.monotonic()
        _log.info(
            "request %s: %s, %d prompt tokens (%d local, %d external), %d new, %.3f s",
            request.request_id,
            finish,
            len(request.prompt),
            request.local_cached,
            request.external_cached,
            len(request.output),
            request.times.ended - request.times.arrived,
        )
        self._scheduler.stats.finished.append((request, finish))
        self._news.append(
            Delta(
                request.request_id,
                tokens,
                finish,
                cached_tokens=request.reported_cached,
                transfer_params=hold.params if hold else None,
                error=error,
            )
        )

    def _publish(self, emit: Callable[[list[Delta]], None]) -> None:
        self._scheduler.measure()
        self._metrics.record(self._scheduler.stats)
        self._scheduler.stats = Stats()
        if self._news:
            news, self._news = self._news, []
            emit(news)
