"""Load or recompute: the cost model and the decision per request. Pure.

Recomputing n tokens takes n/R while the engine steps; loading them holds the engine for Te
(exchange, transfer, the step over the tail), the request for Tw, and moves n·s bytes at B behind
the q bytes that the tier still owes. With u the share of time the engine is stepping anyway,

    C_recompute(n) = (n/R) / (1-u)
    C_load(n)      = Te/(1-u) + Tw + (q + n·s)/B

are what its own request waits. The decision weighs those behind it too: with λ requests a second,
of which the share p finds the engine stepping, x seconds of the engine cost all together

    T(x) = x + x·p²/(2(1-p)²) + (λ·p/u)·x²/(2(1-p))

(its own, what they delay those that come while the work before it lasts, and while it lasts
itself), and a hit is loaded when T(Te) + Tw + (q + n·s)/B < T(n/R). A hit uses no compute, so the
busier the engine is, the shorter the prompts worth loading; the more the tier owes, the longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_BUSIEST: Final = 0.99
"""u is taken as this at most: a queue that never empties has no finite cost, and the decision at
0.99 is already that of the limit (load whatever is longer than R·Te)."""


class Mode(StrEnum):
    """How a hit of one request is loaded; fixed at its first lookup."""

    ASYNC = "Async"
    SYNC = "Sync"
    BYPASS = "Bypass"


class Wanted(StrEnum):
    """The mode that is set for the engine; Auto lets the model choose between Async and Bypass."""

    AUTO = "Auto"
    ASYNC = "Async"
    SYNC = "Sync"
    BYPASS = "Bypass"


class Reason(StrEnum):
    """Why a request is loaded or not; a label of the decision counter."""

    CHEAPER = "LoadCheaper"
    DEARER = "RecomputeCheaper"
    FORCED = "ModeSet"
    BYPASSED = "Bypassed"
    SHORT = "BelowMinTokens"
    NOTHING = "NoHit"
    UNMEASURED = "NoModel"
    CLOSED = "TierClosed"


@dataclass(frozen=True, slots=True)
class Model:
    """The measured numbers of one engine and its tier.

    Attributes:
        rate: Tokens computed per second by a busy engine (R), > 0.
        token_bytes: Bytes of KV per token over all ranks together (s), > 0.
        bandwidth: Bytes per second the tier delivers to all ranks together (B), > 0.
        engine_fixed: Seconds a hit holds the engine whatever its length (Te), ≥ 0.
        request_fixed: Further seconds a hit delays its own request (Tw), ≥ 0.
    """

    rate: float
    token_bytes: float
    bandwidth: float
    engine_fixed: float
    request_fixed: float

    def __post_init__(self) -> None:
        positive = (self.rate, self.token_bytes, self.bandwidth)
        fixed = (self.engine_fixed, self.request_fixed)
        finite = all(math.isfinite(number) for number in (*positive, *fixed))
        if not finite or min(positive) <= 0 or min(fixed) < 0:
            raise ValueError(
                "rate, bytes per token and bandwidth are > 0, fixed times ≥ 0, all finite"
            )

    @property
    def needed_bandwidth(self) -> float:
        """B* = s·R: below it an idle engine recomputes faster than the tier delivers."""
        return self.token_bytes * self.rate


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine and the tier are doing right now.

    Attributes:
        busy: Share of time the engine is stepping (u), 0 to 1.
        owed: Bytes asked of the tier and not yet here (q).
        arrivals: Requests a second that come to the engine (λ).
        met: Share of them that find it stepping (p), 0 to 1; none: as many as u.
    """

    busy: float = 0.0
    owed: float = 0.0
    arrivals: float = 0.0
    met: float | None = None

    @property
    def idle(self) -> float:
        """1 - u, kept away from 0."""
        return 1.0 - min(max(self.busy, 0.0), _BUSIEST)


def recompute_cost(model: Model, tokens: int, load: Load) -> float:
    """C_recompute in seconds."""
    return tokens / model.rate / load.idle


def load_cost(model: Model, tokens: int, load: Load) -> float:
    """C_load in seconds."""
    moved = (max(load.owed, 0.0) + tokens * model.token_bytes) / model.bandwidth
    return model.engine_fixed / load.idle + model.request_fixed + moved


def total_cost(seconds: float, load: Load) -> float:
    """T: what so many seconds of the engine cost their request and all that come behind it."""
    met = min(max(load.busy if load.met is None else load.met, 0.0), _BUSIEST)
    busy = 1.0 - load.idle
    meeting = max(load.arrivals, 0.0) * met / busy if busy > 0 else 0.0
    found = seconds * met**2 / (2 * (1.0 - met) ** 2)
    return seconds + found + meeting * seconds**2 / (2 * (1.0 - met))


def prefers_load(model: Model, tokens: int, load: Load) -> bool:
    """Whether loading costs all requests together less than recomputing."""
    moved = (max(load.owed, 0.0) + tokens * model.token_bytes) / model.bandwidth
    loading = total_cost(model.engine_fixed, load) + model.request_fixed + moved
    return loading < total_cost(tokens / model.rate, load)


def break_even(model: Model, load: Load) -> float:
    """n*(u): from here on a hit's own request is sooner when loaded; infinite when none is."""
    gain = 1.0 / (model.rate * load.idle) - model.token_bytes / model.bandwidth
    if gain <= 0:
        return math.inf
    waiting = max(load.owed, 0.0) / model.bandwidth
    return (model.engine_fixed / load.idle + model.request_fixed + waiting) / gain


def utilisation(model: Model, tokens: float, arrivals: float) -> float:
    """ρ = λ·n·s/B of a tier that serves one hit after the other; from 1 on its queue only grows."""
    return arrivals * tokens * model.token_bytes / model.bandwidth


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one request's hit, and why.

    Attributes:
        mode: Bypass means recompute.
        reason: Why.
        tokens: Tokens the decision is about.
        load_seconds: C_load, of its own request alone; none without a model.
        recompute_seconds: C_recompute, likewise.
    """

    mode: Mode
    reason: Reason
    tokens: int
    load_seconds: float | None = None
    recompute_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What is set from outside.

    Attributes:
        wanted: The mode; Auto decides per request.
        min_tokens: Hits below it are recomputed in any mode.
        model: The numbers; without them Auto loads every hit of min_tokens and more, as a stock
            engine does, until they are there.
    """

    wanted: Wanted = Wanted.AUTO
    min_tokens: int = 0
    model: Model | None = None


def decide(rules: Rules, tokens: int, load: Load, *, bypassed: bool, closed: bool) -> Decision:
    """Decide about a hit of so many tokens that the engine does not hold itself.

    Args:
        rules: What is set.
        tokens: Tokens a load would save computing.
        load: What engine and tier are doing.
        bypassed: Whether the tier as a whole is bypassed at present (see ``bypass``); only Auto
            heeds it, a mode that was set is what its setter wants.
        closed: Whether the tier must not be read at all (self-test, mismatch, unknown versions).
    """
    if closed:
        return Decision(Mode.BYPASS, Reason.CLOSED, tokens)
    if tokens <= 0:
        return Decision(Mode.BYPASS, Reason.NOTHING, tokens)
    if rules.wanted is Wanted.BYPASS:
        return Decision(Mode.BYPASS, Reason.FORCED, tokens)
    costs = _costs(rules.model, tokens, load)
    if tokens < rules.min_tokens:
        return Decision(Mode.BYPASS, Reason.SHORT, tokens, *costs)
    if rules.wanted is not Wanted.AUTO:
        return Decision(Mode(rules.wanted.value), Reason.FORCED, tokens, *costs)
    if bypassed:
        return Decision(Mode.BYPASS, Reason.BYPASSED, tokens, *costs)
    if rules.model is None:
        return Decision(Mode.ASYNC, Reason.UNMEASURED, tokens)
    if prefers_load(rules.model, tokens, load):
        return Decision(Mode.ASYNC, Reason.CHEAPER, tokens, *costs)
    return Decision(Mode.BYPASS, Reason.DEARER, tokens, *costs)


def _costs(model: Model | None, tokens: int, load: Load) -> tuple[float, float] | tuple[None, None]:
    if model is None:
        return None, None
    return load_cost(model, tokens, load), recompute_cost(model, tokens, load)


def deadline(rules: Rules, tokens: int, load: Load, blocking_timeout: float) -> float:
    """Seconds a load may take before it is given up: never longer than recomputing takes."""
    if rules.model is None:
        return blocking_timeout
    return min(blocking_timeout, recompute_cost(rules.model, tokens, load))
