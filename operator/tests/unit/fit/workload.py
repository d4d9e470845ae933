"""Records as a store would write them: a FIFO tier, drifting arrivals, noisy timers, outliers."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from kvserving_operator.fit import LoadRecord, StepRecord

PAPER_MIX = "the paper's 14,715 to 17,889"
MIXES: dict[str, Callable[[random.Random], int]] = {
    PAPER_MIX: lambda rng: rng.randint(14_715, 17_889),
    "one length": lambda _: 16_390,
    "9k to 200k": lambda rng: int(math.exp(rng.uniform(math.log(9_000), math.log(200_000)))),
    "short ones": lambda rng: rng.randint(512, 4_000),
    "short and long": lambda rng: rng.choice([1_024, 120_000]),
}


@dataclass(kw_only=True)
class Truth:
    """What the estimates are held against; may be changed in between."""

    rate: float = 52_200.0
    token_bytes: float = 48_400.0
    bandwidth: float = 10.76e9
    engine_fixed: float = 0.182
    request_fixed: float = 0.148


@dataclass(kw_only=True)
class Workload:
    """A stream of loads and steps. The first ones are warm-up: four times as slow."""

    seed: int
    mix: str = PAPER_MIX
    noise: float = 0.2
    outliers: float = 0.05
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)  # noqa: S311
        self._serials = count()
        self._step_serials = count()
        self._now = 0.0
        self._free = 0.0

    def _noisy(self, seconds: float, *, warm_up: bool) -> float:
        rng = self._rng
        if warm_up:
            return 4 * seconds
        factor = rng.uniform(3, 10) if rng.random() < self.outliers else rng.gauss(1, self.noise)
        return seconds * max(0.1, factor)

    def _arrivals(self) -> float:
        """λ drifts between almost idle and nine tenths of what the tier delivers."""
        most = 0.9 * self.truth.bandwidth / self.truth.token_bytes / 30_000
        return most * (0.5 + 0.45 * math.sin(self._now / 40 + self.seed))

    def load(self) -> LoadRecord:
        rng, truth = self._rng, self.truth
        serial = next(self._serials)
        warm = serial < 5
        self._now += rng.expovariate(self._arrivals())
        tokens = MIXES[self.mix](rng)
        size = int(tokens * truth.token_bytes)
        begin = max(self._now, self._free)
        self._free = begin + self._noisy(size / truth.bandwidth, warm_up=warm)
        busy = rng.random() < 0.3
        others = rng.randint(4_096, 16_000) if busy else 0
        step = truth.engine_fixed + others / truth.rate
        notice = None if busy else self._noisy(truth.request_fixed * 0.6, warm_up=warm)
        return LoadRecord(
            serial=serial,
            tokens=tokens,
            bytes_read=size,
            probe_seconds=self._noisy(truth.request_fixed * 0.4, warm_up=warm),
            fetch_seconds=self._free - self._now,
            served_seconds=self._free - begin,
            notice_seconds=notice,
            step_seconds=self._noisy(step, warm_up=warm),
            step_tokens=others + rng.randint(1, 256),
            step_loads=1,
        )

    def loads(self, amount: int) -> list[LoadRecord]:
        return [self.load() for _ in range(amount)]

    def steps(self, amount: int) -> Iterator[StepRecord]:
        for _ in range(amount):
            serial = next(self._step_serials)
            tokens = self._rng.randint(4_096, 16_384)
            seconds = self._noisy(tokens / self.truth.rate, warm_up=serial < 5)
            yield StepRecord(serial=serial, tokens=tokens, seconds=seconds)
