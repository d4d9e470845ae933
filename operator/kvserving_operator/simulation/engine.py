"""One prefill engine: continuous batching with chunked prefill, all ranks in lockstep. Pure.

A step serves what runs first, then admits waiting requests in their order while its token budget
lasts, as vLLM's scheduler does. Requests whose KV is being loaded are passed by others. A
synchronous load is part of the step, so it stalls every request and every rank of the engine.
"""

from collections import deque
from collections.abc import Callable

from kvserving_operator.cost import Load
from kvserving_operator.simulation.busy import ArrivalMeter, BusyMeter
from kvserving_operator.simulation.job import Job, Phase
from kvserving_operator.simulation.lookup import Lookup
from kvserving_operator.simulation.scenario import Scenario
from kvserving_operator.simulation.tier import NEVER, Tier

Timer = Callable[[float, Callable[[float], None]], None]
"""Calls a function at a time, with that time."""


class PrefillEngine:
    """``finished`` is told of each job when its prompt is done, and again when its answer is."""

    def __init__(
        self,
        scenario: Scenario,
        tier: Tier | None,
        at: Timer,
        *,
        prefilled: Callable[[Job, float], None],
        ended: Callable[[Job, float], None],
    ) -> None:
        self._settings = scenario.engines
        self._tier = tier
        self._at = at
        self._prefilled = prefilled
        self._ended = ended
        self.lookup = Lookup(scenario, tier)
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._decoding: list[Job] = []
        self._step: list[tuple[Job, int]] = []
        self._stepping = False
        self._started = 0.0
        self._busy = BusyMeter()
        self._arrivals = ArrivalMeter()
        self.compute_seconds = 0.0
        """Seconds that the accelerators computed or exchanged KV, waiting for bytes left out."""

    def submit(self, job: Job, now: float) -> None:
        """A request arrives."""
        self._waiting.append(job)
        self._wake(now)

    def _wake(self, now: float) -> None:
        if not self._stepping:
            self._begin(now)

    def _begin(self, now: float) -> None:
        """Put a step together and start it, unless there is nothing to compute."""
        step: list[tuple[Job, int]] = []
        budget = self._settings.step_tokens - len(self._decoding)
        for job in self._running:
            if budget <= 0:
                break
            budget -= self._take(job, budget, step)
        self._admit(step, budget, now)
        if not step and not self._decoding:
            return
        self._step, self._stepping, self._started = step, True, now
        self._at(now + self._seconds(step, now), self._finish)

    def _admit(self, step: list[tuple[Job, int]], budget: int, now: float) -> None:
        waiting, passed, settings = self._waiting, [], self._settings
        seats = settings.max_requests - len(self._running) - len(self._decoding)
        while waiting and budget > 0 and seats > 0:
            job = waiting.popleft()
            if job.phase is Phase.WAITING:
                rate, met = self._arrivals.came(now, busy=self._busy.until >= now)
                load = Load(busy=self._busy.share(now), arrivals=rate, met=met)
                self.lookup.look_up(job, now, load)
                if job.ready_at > now:
                    self._at(job.ready_at, self._wake)
            if job.ready_at > now:
                passed.append(job)
                continue
            budget -= self._take(job, budget, step)
            self._running.append(job)
            seats -= 1
        waiting.extendleft(reversed(passed))

    @staticmethod
    def _take(job: Job, budget: int, step: list[tuple[Job, int]]) -> int:
        tokens = min(job.computed_left, budget)
        step.append((job, tokens))
        return tokens

    def _seconds(self, step: list[tuple[Job, int]], now: float) -> float:
        """How long the step takes: its loads, then its compute."""
        settings, arrived, tokens, fixed = self._settings, now, 0, self._fixed_seconds()
        for job, count in step:
            tokens += count
            fixed += job.engine_seconds
            job.engine_seconds = 0.0
            if job.sync_chunks and self._tier is not None:
                end = self._tier.fetch(job.sync_chunks, arrived, deadline=NEVER, cancel=False)
                arrived = arrived if end is None else max(arrived, end)
                job.sync_chunks = []
        compute = fixed + tokens / settings.tokens_per_second
        self.compute_seconds += compute
        return arrived - now + compute

    def _fixed_seconds(self) -> float:
        """Of any step, and one token's if anything decodes."""
        token = self._settings.inter_token_seconds
        return self._settings.step_seconds + (token if token and self._decoding else 0.0)

    def _finish(self, now: float) -> None:
        self._busy.stepped(self._started, now)
        self._stepping = False
        self._decode(now)
        for job, tokens in self._step:
            job.computed_left -= tokens
            if job.computed_left == 0:
                self._running.remove(job)
                self._first_token(job, now)
        self._step = []
        self._wake(now)

    def _first_token(self, job: Job, now: float) -> None:
        self.lookup.done(job)
        self._prefilled(job, now)
        if self._settings.inter_token_seconds is None:
            return
        job.decode_left = job.output_tokens - 1
        if job.decode_left:
            self._decoding.append(job)
        else:
            self._ended(job, now)

    def _decode(self, now: float) -> None:
        """One more token for each stream."""
        if not self._decoding:
            return
        left = []
        for job in self._decoding:
            job.decode_left -= 1
            if job.decode_left:
                left.append(job)
            else:
                self._ended(job, now)
        self._decoding = left
