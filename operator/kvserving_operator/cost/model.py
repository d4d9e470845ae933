"""Seconds of recomputing and of loading a prompt, and where they break even. Pure.

Recomputing n tokens takes n/R while the engine steps. Loading them holds the engine for Te
(exchange, transfer, the step over the tail), the request for Tw, and moves n·s bytes at B behind
the q bytes that the tier still owes. With u the share of time the engine is stepping anyway:

    C_recompute(n) = (n/R) / (1-u)
    C_load(n)      = Te/(1-u) + Tw + (q + n·s)/B

With u = q = 0 these are T_recompute and T_load of the paper on remote KV tiers (T0 = Te + Tw).
1/(1-u) is one engine's; several behind a router wait less, and have ``pool.stretch`` in its place.

These are what its own request waits. A decision weighs those behind it too: x seconds of an engine
that serves one after the other delay everybody who comes until it is idle once. With λ requests a
second, of which the share p finds the engine stepping, a = λ·p/u come in a second of stepping. Of a
request that finds W seconds of work a·W/(1-p) come before the engine is idle, and are delayed by x
each; of its own x seconds a·x/(1-p), delayed by x/2 on average. For like services a·W is
p²/(2(1-p)) (Pollaczek and Khinchine). So

    T(x) = x + x·p²/(2(1-p)²) + (λ·p/u)·x²/(2(1-p))

With one engine and arrivals at random p is u; behind a router that picks the freest it is less,
and a hit is loaded when T(Te) + Tw + (q + n·s)/B < T(n/R). The wait for those before it is the same
either way. The sharded store decides by the same formulas for each request; one table of cases
holds both to it.
"""

import math
from dataclasses import dataclass
from typing import Final

from kvserving_operator.cost.pool import ONE, Pool, stretch

BUSIEST: Final = 0.99
"""u is taken as this at most: a queue that never empties has no finite cost, and the decision at
0.99 is already that of the limit (load whatever is longer than R·Te)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The numbers of one prefill engine and its tier.

    Raises ValueError for numbers that are not finite, rates ≤ 0 and times < 0.
    """

    tokens_per_second: float
    """R: tokens that a busy engine computes in a second, > 0."""
    bytes_per_token: float
    """s: bytes of KV of a token over all ranks together, > 0."""
    bandwidth: float
    """B: bytes a second that the tier delivers to all ranks together, > 0."""
    engine_fixed_seconds: float
    """Te: seconds for which a hit holds the engine whatever its length, ≥ 0."""
    request_fixed_seconds: float = 0.0
    """Tw: further seconds that a hit delays its own request, ≥ 0."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("tokens_per_second", self.tokens_per_second, None),
            ("bytes_per_token", self.bytes_per_token, None),
            ("bandwidth", self.bandwidth, None),
            ("engine_fixed_seconds", self.engine_fixed_seconds, 0.0),
            ("request_fixed_seconds", self.request_fixed_seconds, 0.0),
        ):
            if not math.isfinite(value) or (value <= 0 if least is None else value < least):
                wanted = "> 0" if least is None else "≥ 0"
                raise ValueError(f"{name} is {value}; it must be finite and {wanted}")

    @property
    def fixed_seconds(self) -> float:
        """T0 = Te + Tw: what a hit costs on an idle engine before its first byte."""
        return self.engine_fixed_seconds + self.request_fixed_seconds

    @property
    def break_even_bandwidth(self) -> float:
        """B* = s·R: below it an idle engine recomputes faster than the tier delivers."""
        return self.bytes_per_token * self.tokens_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What engine and tier are doing while a request comes."""

    busy: float = 0.0
    """u: share of time the engine is stepping, 0 to 1; other values are cut off."""
    owed_bytes: float = 0.0
    """q: bytes asked of the tier and not yet here, ≥ 0."""
    arrivals: float = 0.0
    """λ: requests a second that come to the engine, ≥ 0."""
    met: float | None = None
    """p: share of them that find the engine stepping, 0 to 1; None: as many as u."""
    pool: Pool = ONE
    """The replicas that share the prompts, each busy for u; one where an engine decides itself."""

    @property
    def idle_share(self) -> float:
        """1 - u, kept away from 0."""
        return 1.0 - min(max(self.busy, 0.0), BUSIEST)

    @property
    def stretch(self) -> float:
        """Times its own work that a prompt takes: 1/(1-u) of one engine."""
        return stretch(self.pool, 1.0 - self.idle_share)

    @property
    def owed(self) -> float:
        """q, never below 0."""
        return max(self.owed_bytes, 0.0)


IDLE: Final = Load()
"""Nobody else is there: the paper's case."""


def recompute_seconds(model: Model, tokens: float, load: Load = IDLE) -> float:
    """C_recompute: seconds from the engine's taking the prompt to its first token."""
    return tokens / model.tokens_per_second * load.stretch


def load_seconds(model: Model, tokens: float, load: Load = IDLE) -> float:
    """C_load: seconds from the decision to the first token of a prompt that is loaded."""
    moved = (load.owed + tokens * model.bytes_per_token) / model.bandwidth
    return model.engine_fixed_seconds * load.stretch + model.request_fixed_seconds + moved


def total_seconds(engine_seconds: float, load: Load = IDLE) -> float:
    """T: what so many seconds of the engine cost their request and all that come behind it."""
    met = min(max(load.busy if load.met is None else load.met, 0.0), BUSIEST)
    busy = 1.0 - load.idle_share
    meeting = max(load.arrivals, 0.0) * met / busy if busy > 0 else 0.0
    found = engine_seconds * met**2 / (2 * (1.0 - met) ** 2)
    return engine_seconds + found + meeting * engine_seconds**2 / (2 * (1.0 - met))


def prefers_load(model: Model, tokens: float, load: Load = IDLE) -> bool:
    """Whether loading so many tokens costs all requests together less than recomputing them."""
    moved = (load.owed + tokens * model.bytes_per_token) / model.bandwidth
    loading = total_seconds(model.engine_fixed_seconds, load) + model.request_fixed_seconds + moved
    return loading < total_seconds(tokens / model.tokens_per_second, load)


def break_even_tokens(model: Model, load: Load = IDLE) -> float:
    """n*(u, q): from here on a hit's own request is served sooner when it is loaded.

    Infinite when no length is. A decision per request weighs others too (``prefers_load``).
    """
    gained = load.stretch / model.tokens_per_second - model.bytes_per_token / model.bandwidth
    if gained <= 0:
        return math.inf
    waiting = load.owed / model.bandwidth
    fixed = model.engine_fixed_seconds * load.stretch + model.request_fixed_seconds
    return (fixed + waiting) / gained


def floor_bandwidth(model: Model, load: Load = IDLE, margin: float = 0.0) -> float:
    """s·R·(1-u)·(1-h): a tier below it delivers no length faster than the engine computes it.

    With ``margin`` h as hysteresis it is what the upper bound of B must fall below before the
    whole tier is bypassed. One engine's wait is counted whatever the pool: engines go on deciding
    for each hit while the tier is not bypassed, so the floor may be too low, never too high.
    """
    return model.break_even_bandwidth * (1.0 - min(max(load.busy, 0.0), 1.0)) * (1.0 - margin)


def tier_utilization(model: Model, tokens: float, arrivals: float) -> float:
    """ρ = λ·n·s/B, with λ hits a second of n tokens each.

    From 1 on a tier that is asked for every hit falls behind for ever. It is also the utilisation
    of an engine that loads synchronously, as far as the bytes go.
    """
    return arrivals * tokens * model.bytes_per_token / model.bandwidth


def tier_wait_seconds(model: Model, tokens: float, arrivals: float) -> float:
    """Mean seconds that a hit waits for those before it: M/D/1, ρ/(2(1-ρ)) services.

    Infinite from ρ = 1 on. Source: Pollaczek and Khinchine's mean for a constant service time.
    """
    utilization = tier_utilization(model, tokens, arrivals)
    if utilization >= 1:
        return math.inf
    service = tokens * model.bytes_per_token / model.bandwidth
    return utilization / (2 * (1 - utilization)) * service
