"""Continuous batching as vLLM does it, on one thread (pure; the clock is an argument).

A step serves running requests first (one token each, or the next chunk of a prompt), then admits
waiting ones while blocks, seats and the token budget last. A request that finds no block for its
next token preempts the youngest running one, which starts over later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kvserving_engine_sim.scheduler.blocks import BlockPool, extend_hashes
from kvserving_engine_sim.scheduler.external import Hold, Match, Sources
from kvserving_engine_sim.scheduler.request import Finish, LoadStage, Phase, Request
from kvserving_engine_sim.scheduler.stats import Stats
from kvserving_engine_sim.workers.messages import Sequence, Step


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a step, and the speed of the simulated engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    tokens_per_second: float
    inter_token_seconds: float


class Scheduler:
    """Queue and running set. `stats` is read and replaced by the owner."""

    def __init__(self, limits: Limits, pool: BlockPool, sources: Sources) -> None:
        self._limits = limits
        self._pool = pool
        self._sources = sources
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._deferred: set[str] = set()
        self.stats = Stats()

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def schedule(self, now: float) -> Step:
        """The next step; it has no sequences when nothing can run now."""
        step = Step()
        self._deferred.clear()
        left, preempted = self._serve_running(step)
        if not preempted:
            self._admit_waiting(step, left, now)
        step.seconds = self._duration(step)
        step.unpin = self._sources.stale_lookups()
        self._measure(step)
        return step

    def computed(self, request: Request, sequence: Sequence) -> None:
        """A step computed the KV of a sequence: count it and publish full blocks."""
        request.computed = sequence.start + len(sequence.tokens)
        self.publish(request)

    def publish(self, request: Request) -> None:
        """Make the full blocks of a request findable for others."""
        full = request.computed // self._limits.block_size
        extend_hashes(request.hashes, request.tokens, self._limits.block_size, full)
        for block, digest in zip(request.blocks[:full], request.hashes[:full], strict=True):
            self._pool.publish(block, digest)

    def roll_back(self, request: Request, valid: int) -> None:
        """Only the first `valid` tokens of a running request have right KV."""
        size = self._limits.block_size
        request.computed, request.verified = valid // size * size, 0
        self._pool.withdraw(request.blocks[valid // size :])
        request.external_cached = max(0, request.computed - request.local_cached)
        request.local_cached = min(request.local_cached, request.computed)
        self._sources.rolled_back(request)

    def remove(self, request: Request) -> None:
        """Take a request out of the queue or the running set; its blocks stay with it."""
        for group in (self.waiting, self.running):
            if request in group:
                group.remove(request)
        request.phase = Phase.FINISHED

    def finished(self, request: Request, finish: Finish) -> Hold | None:
        """Tell the sources that a request ended; one of them may hold its blocks."""
        return self._sources.finished(request, finish)

    def stepped(self, tokens: int) -> None:
        """See `Source.stepped`."""
        self._sources.stepped(tokens)

    def release(self, request: Request, keep: Collection[int] = ()) -> None:
        """Give a request's blocks back, except those that are held for another engine."""
        kept = set(keep)
        self._pool.release([block for block in request.blocks if block not in kept])
        request.blocks = []

    def measure(self) -> None:
        """Bring the gauges of `stats` up to date."""
        loading = [r for r in self.waiting if r.load_stage]
        deferred = [r for r in self.waiting if r.request_id in self._deferred]
        deferred += [r for r in self.waiting if r.phase is Phase.LOADING]
        self.stats.running = len(self.running)
        self.stats.deferred = len(deferred)
        self.stats.waiting = len(self.waiting) - len(deferred)
        self.stats.usage = self._pool.usage
        self.stats.loading = {
            stage: sum(r.load_stage is stage for r in loading) for stage in LoadStage
        }

    def _serve_running(self, step: Step) -> tuple[int, bool]:
        left = self._limits.max_num_batched_tokens
        preempted = False
        for request in list(self.running):
            if request not in self.running or left <= 0:
                continue
            count = min(request.length - request.computed, left)
            while not self._grow(request, request.computed + count):
                preempted = True
                victim = self.running[-1]
                left += self._preempt(victim, step)
                if victim is request:
                    break
            else:
                self._append(step, request, count)
                left -= count
        return left, preempted

    def _admit_waiting(self, step: Step, left: int, now: float) -> None:
        for request in list(self.waiting):
            if left <= 0 or len(self.running) >= self._limits.max_num_seqs:
                return
            if request.phase is Phase.LOADING:
                continue
            local, match = self._look_up(request)
            if match is None:
                self._deferred.add(request.request_id)
                continue
            count = 0 if match.background else self._new_tokens(request, local, match, left)
            if not self._seat(request, local, match, count):
                return
            self._count_admission(request, match)
            if match.background:
                request.phase, request.load_stage = Phase.LOADING, LoadStage.IN_PROGRESS
                continue
            self._start(request, now)
            self._append(step, request, count)
            left -= count

    def _look_up(self, request: Request) -> tuple[list[int], Match | None]:
        if request.blocks:
            # A background load has put KV there, or failed to: it is not looked up again.
            return [], Match()
        size = self._limits.block_size
        full = (request.length - 1) // size
        extend_hashes(request.hashes, request.tokens, size, full)
        local = self._pool.match(request.hashes[:full])
        return local, self._sources.match(request, len(local) * size)

    def _new_tokens(self, request: Request, local: list[int], match: Match, left: int) -> int:
        start = request.computed or len(local) * self._limits.block_size + match.tokens
        return min(request.length - start, left)

    def _seat(self, request: Request, local: list[int], match: Match, count: int) -> bool:
        """Give a request its blocks; False if there are too few."""
        size = self._limits.block_size
        known = request.computed or len(local) * size + match.tokens
        missing = -(-(known + count) // size) - len(local) - len(request.blocks)
        wanted = max(missing, 0) + len(local) - self._pool.held(local)
        if wanted > self._pool.free:
            return False
        self._pool.take(local)
        request.blocks += local + self._pool.allocate(max(missing, 0))
        if not request.computed:
            request.local_cached = len(local) * size
            request.external_cached = match.tokens
            request.source = match.source
            request.computed = request.local_cached
            if not match.background:
                request.computed += match.tokens
        if not request.admitted:
            self._sources.admitted(request, match)
        return True

    def _count_admission(self, request: Request, match: Match) -> None:
        if request.admitted:
            return
        request.admitted = True
        if request.preemptions:
            return
        self.stats.local_queries += request.length
        self.stats.local_hits += request.local_cached
        if self._sources:
            self.stats.external_queries += request.length - request.local_cached
            self.stats.external_hits += match.tokens
            self.stats.external_hits_by_nixl += match.tokens if match.background else 0

    def _start(self, request: Request, now: float) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        request.phase, request.load_stage = Phase.RUNNING, None
        request.times.scheduled = request.times.scheduled or now

    def _append(self, step: Step, request: Request, count: int) -> None:
        start = request.computed
        sequence = Sequence(
            request_id=request.request_id,
            start=start,
            tokens=request.tokens[start : start + count],
            blocks=list(request.blocks),
            verify_from=request.verified,
            sample=request.sampling if start + count == request.length else None,
            generated=len(request.output),
        )
        request.verified = start + count if sequence.sample else start
        self._sources.attach(request, sequence)
        step.sequences.append(sequence)

    def _grow(self, request: Request, tokens: int) -> bool:
        missing = -(-tokens // self._limits.block_size) - len(request.blocks)
        if missing > self._pool.free:
            return False
        request.blocks += self._pool.allocate(max(missing, 0))
        return True

    def _preempt(self, victim: Request, step: Step) -> int:
        """Send a running request back to the queue; the tokens of its sequence in this step."""
        self.running.remove(victim)
        self.release(victim)
        victim.computed = victim.verified = 0
        victim.admitted = False
        victim.preemptions += 1
        victim.phase = Phase.WAITING
        self.waiting.insert(0, victim)
        self.stats.preemptions += 1
        kept, freed = [], 0
        for sequence in step.sequences:
            if sequence.request_id == victim.request_id:
                freed += len(sequence.tokens)
            else:
                kept.append(sequence)
        step.sequences = kept
        return freed

    def _duration(self, step: Step) -> float:
        prefill = sum(len(s.tokens) for s in step.sequences if len(s.tokens) > 1)
        decoding = any(len(s.tokens) == 1 for s in step.sequences)
        seconds = prefill / self._limits.tokens_per_second
        return seconds + (self._limits.inter_token_seconds if decoding else 0.0)

    def _measure(self, step: Step) -> None:
        self.measure()
        if step.sequences:
            self.stats.steps.append(sum(len(s.tokens) for s in step.sequences))
