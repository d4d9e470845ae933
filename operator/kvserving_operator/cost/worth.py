"""Does the tier pay: yes, no, or a tie, and in what. Pure.

Two numbers for each hit: the engine seconds it saves (capacity) and the seconds by which its first
token comes sooner (latency). The costs at u hold both, because an engine that is freed serves those
who wait; so the verdict compares these, and says whether an idle engine would agree.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvserving_operator.cost.model import (
    BUSIEST,
    IDLE,
    Load,
    Model,
    load_seconds,
    recompute_seconds,
    tier_utilization,
    tier_wait_seconds,
)
from kvserving_operator.cost.pool import ONE, Pool

MARGIN: Final = 0.1
"""Costs this close to each other are a tie: no better is any of the numbers known."""


class Pays(StrEnum):
    """The verdict."""

    YES = "yes"
    NO = "no"
    TIE = "tie"


class PaysIn(StrEnum):
    """What is gained. Latency implies capacity: a hit that is quicker holds the engine less."""

    LATENCY = "latency"
    CAPACITY = "capacity"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one hit gains; negative when it loses."""

    engine_seconds: float
    """Seconds of the engine: n/R - Te."""
    ttft_seconds: float
    """Seconds of its own first token: C_recompute - C_load."""

    @property
    def worth_reading(self) -> bool:
        """Whether it gains anything at all."""
        return self.engine_seconds > 0 or self.ttft_seconds > 0


def gain(model: Model, tokens: float, load: Load = IDLE) -> Gain:
    """What loading ``tokens`` gains over recomputing them."""
    return Gain(
        engine_seconds=recompute_seconds(model, tokens) - model.engine_fixed_seconds,
        ttft_seconds=recompute_seconds(model, tokens, load) - load_seconds(model, tokens, load),
    )


def blocking_gain(model: Model, tokens: float, load: Load = IDLE) -> Gain:
    """The same where the engine stands still for the whole load, as with stock LMCache."""
    saved = recompute_seconds(model, tokens) - load_seconds(model, tokens)
    return Gain(engine_seconds=saved, ttft_seconds=saved * load.stretch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How prefill engines are used."""

    hit_tokens: float
    """Tokens of a prompt that the tier holds, > 0."""
    prompt_tokens: float
    """Tokens of a prompt, ≥ ``hit_tokens``."""
    arrivals: float
    """λ: prompts a second that ask the tier, those of all engines together, ≥ 0."""
    busy: float | None = None
    """u of an engine; None takes that of engines that recompute everything, λ·n/(c·R)."""
    pool: Pool = ONE
    """The engines, and how prompts are spread over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the tier pays, with the numbers it rests on. Seconds are those of the hit's tokens.

    Seconds are infinite where a queue has no end.
    """

    pays: Pays
    pays_in: PaysIn
    load: Load
    """u that was taken, and the bytes that the tier owes on average."""
    tier_utilization: float
    """ρ."""
    load_seconds: float
    """C_load, the wait for the tier included."""
    recompute_seconds: float
    """C_recompute."""
    gain: Gain


def verdict(model: Model, operation: Operation) -> Verdict:
    """Whether reading the tier pays for engines used like this.

    Never ``yes`` from ρ = 1 on: whatever one hit gains, the tier cannot deliver all of them.
    """
    tokens = operation.hit_tokens
    utilization = tier_utilization(model, tokens, operation.arrivals)
    waiting = tier_wait_seconds(model, tokens, operation.arrivals)
    load = Load(
        busy=_busy(model, operation),
        owed_bytes=waiting * model.bandwidth,
        pool=operation.pool,
    )
    loading, computing = load_seconds(model, tokens, load), recompute_seconds(model, tokens, load)
    pays = _pays(loading, computing)
    return Verdict(
        pays=pays,
        pays_in=_pays_in(model, tokens, pays),
        load=load,
        tier_utilization=utilization,
        load_seconds=loading,
        recompute_seconds=computing,
        gain=gain(model, tokens, load),
    )


def _busy(model: Model, operation: Operation) -> float:
    if operation.busy is not None:
        return operation.busy
    computed = operation.arrivals * operation.prompt_tokens / model.tokens_per_second
    return min(computed / operation.pool.replicas, BUSIEST)


def _pays(loading: float, computing: float) -> Pays:
    if loading < computing * (1 - MARGIN):
        return Pays.YES
    return Pays.TIE if loading <= computing * (1 + MARGIN) else Pays.NO


def _pays_in(model: Model, tokens: float, pays: Pays) -> PaysIn:
    if pays is Pays.NO:
        return PaysIn.NEITHER
    if load_seconds(model, tokens) < recompute_seconds(model, tokens):
        return PaysIn.LATENCY
    if gain(model, tokens).engine_seconds > 0:
        return PaysIn.CAPACITY
    return PaysIn.NEITHER
