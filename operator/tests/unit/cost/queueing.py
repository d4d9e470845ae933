"""A prefill engine and a tier, each first come first served, for decisions per request."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from kvserving_operator.cost import Load, Model, prefers_load

Policy = Callable[[int, Load], bool]
"""Whether a hit of so many tokens is loaded."""
WINDOW = 10.0
"""Seconds over which u and λ are taken, as in the sharded store."""
MEETINGS = 30.0
"""Seconds over which p is taken."""
MIXES: dict[str, Callable[[random.Random], int]] = {
    "14.7k to 17.9k": lambda rng: rng.randint(14_715, 17_889),
    "2k to 100k": lambda rng: int(math.exp(rng.uniform(math.log(2_000), math.log(100_000)))),
    "9k to 200k": lambda rng: int(math.exp(rng.uniform(math.log(9_000), math.log(200_000)))),
}


def stream(
    model: Model, mix: str, busy: float, requests: int, seed: int = 1
) -> list[tuple[float, int]]:
    """Arrival and tokens of hits that would keep a recomputing engine busy for that share."""
    rng = random.Random(seed)  # noqa: S311
    tokens = [MIXES[mix](rng) for _ in range(requests)]
    rate = busy * model.tokens_per_second * requests / sum(tokens)
    now, arrivals = 0.0, []
    for amount in tokens:
        now += rng.expovariate(rate)
        arrivals.append((now, amount))
    return arrivals


class Engine:
    """Serves what is ready, in the order in which it got ready."""

    def __init__(self) -> None:
        self._ready: list[tuple[float, int, float, float]] = []
        self._spans: deque[tuple[float, float]] = deque()
        self._free = 0.0
        self._serial = count()
        self.done: list[tuple[float, float]] = []

    def add(self, ready: float, service: float, arrival: float) -> None:
        heapq.heappush(self._ready, (ready, next(self._serial), service, arrival))

    def run(self, until: float) -> None:
        while self._ready and max(self._ready[0][0], self._free) <= until:
            ready, _, service, arrival = heapq.heappop(self._ready)
            start = max(ready, self._free)
            self._free = start + service
            self._spans.append((start, self._free))
            self.done.append((arrival, self._free - arrival))

    def stepping(self, now: float) -> bool:
        return self._free > now

    def busy(self, now: float) -> float:
        while self._spans and self._spans[0][1] < now - WINDOW:
            self._spans.popleft()
        spent = sum(min(end, now) - max(start, now - WINDOW) for start, end in self._spans)
        return spent / WINDOW


def mean_seconds(model: Model, requests: Sequence[tuple[float, int]], policy: Policy) -> float:
    """Mean time to first token, without the first tenth."""
    engine, tier_free = Engine(), 0.0
    seen: deque[tuple[float, bool]] = deque()
    for now, tokens in requests:
        engine.run(now)
        while seen and seen[0][0] <= now - MEETINGS:
            seen.popleft()
        owed = max(0.0, tier_free - now) * model.bandwidth
        load = Load(
            busy=engine.busy(now),
            owed_bytes=owed,
            arrivals=sum(at > now - WINDOW for at, _ in seen) / WINDOW,
            met=sum(met for _, met in seen) / len(seen) if seen else None,
        )
        seen.append((now, engine.stepping(now)))
        if policy(tokens, load):
            moved = tokens * model.bytes_per_token / model.bandwidth
            tier_free = max(now, tier_free) + moved
            ready = tier_free + model.request_fixed_seconds
            engine.add(ready, model.engine_fixed_seconds, now)
        else:
            engine.add(now, tokens / model.tokens_per_second, now)
    engine.run(math.inf)
    times = [seconds for _, seconds in sorted(engine.done)[len(requests) // 10 :]]
    return math.fsum(times) / len(times)


def load_aware(model: Model) -> Policy:
    return lambda tokens, load: prefers_load(model, tokens, load)


def from_length(least: float) -> Policy:
    return lambda tokens, _: tokens >= least
