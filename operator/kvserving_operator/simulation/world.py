"""Runs a scenario: one list of coming events, and who is told of them. Pure."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from kvserving_operator.simulation import arrivals
from kvserving_operator.simulation.decode import DecodeEngine
from kvserving_operator.simulation.engine import PrefillEngine
from kvserving_operator.simulation.job import Job
from kvserving_operator.simulation.prefixes import ChunkKeys
from kvserving_operator.simulation.results import Outcome
from kvserving_operator.simulation.router import Router
from kvserving_operator.simulation.scenario import Scenario
from kvserving_operator.simulation.tier import Tier
from kvserving_operator.simulation.trace import Request

Progress = Callable[[int, int], None]
"""Told how many of how many requests are answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation."""

    outcome: Outcome
    requests: Sequence[Job]
    """In the order in which they were sent."""


def simulate(
    scenario: Scenario,
    requests: Sequence[Request] | None = None,
    *,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Run a scenario on a trace, or on the requests of its own workload.

    Equal arguments give equal results. Raises ValueError where there is neither.
    """
    chance = arrivals.generator(seed)
    if requests is None:
        if scenario.workload is None:
            raise ValueError("workload is missing, and no trace is given")
        requests = arrivals.requests(scenario.workload, chance)
    return World(scenario, requests, chance, progress).run()


class World:
    """The clock and everything in it; used once."""

    def __init__(
        self, scenario: Scenario, requests: Sequence[Request], chance: Random, progress: Progress
    ) -> None:
        self._scenario = scenario
        self._requests = requests
        self._progress = progress
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._keys = ChunkKeys(scenario.chunk_tokens)
        self._tier = _tier(scenario)
        self._engines = [
            PrefillEngine(
                scenario, self._tier, self.at, prefilled=self._prefilled, ended=self._ended
            )
            for _ in range(scenario.engines.count)
        ]
        self._decodes: list[DecodeEngine] = []
        decode = scenario.decode
        if decode is not None and scenario.engines.inter_token_seconds is None:
            self._decodes = [
                DecodeEngine(decode, self.at, self._ended) for _ in range(decode.count)
            ]
        self._router = Router(scenario.policy, scenario.engines.count, chance)
        self._jobs: list[Job] = []
        self._done = 0
        self._prime(chance)

    def at(self, time: float, action: Callable[[float], None]) -> None:
        """Do something at a time that is not past."""
        heapq.heappush(self._events, (time, next(self._order), action))

    def run(self) -> Run:
        """From the first request to the last answer."""
        self._start()
        events = self._events
        while events:
            time, _, action = heapq.heappop(events)
            action(time)
        return Run(outcome=self._outcome(), requests=self._jobs)

    def _start(self) -> None:
        workload = self._scenario.workload
        users = workload.arrivals.concurrency if workload else None
        if users is None:
            self.at(self._requests[0].offset, self._next_arrives)
            return
        ramp = workload.arrivals.ramp_seconds if workload else 0.0
        for user in range(min(users, len(self._requests))):
            self.at(ramp * user / users, self._send)

    def _next_arrives(self, now: float) -> None:
        """Open loop: the next request is sent at its offset, whatever became of the others."""
        self._send(now)
        if len(self._jobs) < len(self._requests):
            self.at(self._requests[len(self._jobs)].offset, self._next_arrives)

    def _send(self, now: float) -> None:
        index = len(self._jobs)
        if index == len(self._requests):
            return
        request = self._requests[index]
        job = Job(index, request, self._keys.of(request), now)
        self._jobs.append(job)
        job.engine = self._router.pick(job)
        self._engines[job.engine].submit(job, now)

    def _prefilled(self, job: Job, now: float) -> None:
        job.first_token = now
        if self._scenario.engines.inter_token_seconds is not None:
            return
        if not self._decodes:
            self._ended(job, now)
            return
        # As vllm-router counts between prefill and decode: the prefill leg, not the whole answer.
        self._router.answered(job.engine)
        decode = min(self._decodes, key=len)
        scenario = self._scenario
        bandwidth = scenario.decode.transfer_bandwidth if scenario.decode else 0.0
        moved = job.prompt_tokens * scenario.bytes_per_token / bandwidth
        self.at(now + moved, lambda time: decode.submit(job, time))

    def _ended(self, job: Job, now: float) -> None:
        job.end = now
        job.keys = []
        if not self._decodes:
            self._router.answered(job.engine)
        self._done += 1
        self._progress(self._done, len(self._requests))
        workload = self._scenario.workload
        if workload is not None and workload.arrivals.concurrency is not None:
            self.at(now + workload.arrivals.think_seconds, self._send)

    def _prime(self, chance: Random) -> None:
        """Fill the caches, in the order of the requests."""
        primed = self._scenario.primed
        if not primed.local and not primed.remote:
            return
        for request in self._requests:
            keys = self._keys.of(request)
            keys = keys[: round(len(keys) * primed.tokens)]
            if self._tier is not None and chance.random() < primed.remote:
                self._tier.cache.put(keys)
            if chance.random() < primed.local:
                for engine in self._engines:
                    engine.lookup.local.put(keys)

    def _outcome(self) -> Outcome:
        jobs, outside = self._jobs, self._scenario.engines.request_seconds
        prompts = sum(job.prompt_tokens for job in jobs)
        first = jobs[0].sent
        seconds = max(job.end for job in jobs) - first
        computed = sum(engine.compute_seconds for engine in self._engines)
        return Outcome(
            ttft=[job.first_token - job.sent + outside for job in jobs],
            from_remote_share=sum(job.remote_tokens for job in jobs) / prompts,
            gpu_utilization=computed / (seconds * len(self._engines)) if seconds else 0.0,
            timeouts=sum(job.timed_out for job in jobs),
            errors=0,
            tokens=prompts + sum(job.output_tokens for job in jobs),
            seconds=seconds + outside,
        )


def _tier(scenario: Scenario) -> Tier | None:
    remote = scenario.engines.remote
    if remote is None:
        return None
    chunk_bytes = scenario.bytes_per_token * scenario.chunk_tokens
    capacity = None
    if remote.bytes_per_instance is not None:
        capacity = int(remote.bytes_per_instance / chunk_bytes) * remote.instances
    return Tier(
        instances=remote.instances,
        bandwidth=remote.bandwidth,
        chunk_bytes=chunk_bytes,
        capacity=capacity,
    )
