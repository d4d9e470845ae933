"""What was measured in the last interval, and whether it can be true. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from kvserving_operator.fit import Known, Number

STALE_INTERVALS: Final = 2.5
"""Facts older than this many intervals say nothing of now."""
_MOST: Final = 1e15
"""Beyond any rate, size or time that is measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotFacts:
    """Of the engines that decode with HOT pages, over the last interval."""

    pool_tokens: float
    """Tokens of KV that HOT and COLD hold together."""
    prefix_tokens: float
    """k·Lp of the prefixes that are alive."""
    occupancy: float
    """Used share of HOT, 0 to 1."""
    failed_admissions: float
    """Prefixes that found no room."""
    cold_free_low: float
    """Least free share of COLD."""
    preemptions: float
    dispatch_share: float | None
    """Share of what was decoded that was served from HOT; None when that is not counted."""
    step_seconds: float | None
    """Median time between two tokens; None when nothing was decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a decision rests on. None: not measured, which is never 0."""

    at: float
    """Wall-clock second of the decision."""
    age_seconds: float
    """Of the oldest measurement that is in it."""
    known: Known
    """The fitted numbers."""
    bytes_per_token: float | None
    busy: float | None
    """u: share of time the prefill engines were stepping."""
    hit_tokens: float | None
    """Mean tokens of a hit."""
    hit_bytes: float | None = None
    """Of a stock engine: mean bytes that a hit brings from the tier; memory has the rest."""
    first_token_seconds: float | None
    """Median time to first token of the prefill leg."""
    bandwidth: Number | None
    """B as loads or, in a bypass, probes show it, over the last intervals."""
    probed: bool
    """Whether bytes came from the tier in the last interval at all."""
    open_breakers: float | None
    """Share of the tier's instances that engines have given up."""
    declined: bool = False
    """Whether hits were recomputed in the last interval, because the model said so."""
    settled: bool = True
    """Whether all engines are of the present revision and have served for a while."""
    hot: HotFacts | None = None


def implausible(facts: Facts) -> str | None:
    """The first number that cannot be true, by its name."""
    for name, value, most in _numbers(facts):
        if value is not None and (not math.isfinite(value) or not 0 <= value <= most):
            return name
    for name, number in (
        ("tokensPerSecond", facts.known.tokens_per_second),
        ("bandwidth", facts.known.bandwidth),
        ("tierBandwidth", facts.bandwidth),
    ):
        if number is not None and number.value <= 0:
            return name
    return None


def _numbers(facts: Facts) -> Iterator[tuple[str, float | None, float]]:
    yield "age", facts.age_seconds, _MOST
    yield "bytesPerToken", facts.bytes_per_token, _MOST
    yield "busy", facts.busy, 1.0
    yield "hitTokens", facts.hit_tokens, _MOST
    yield "hitBytes", facts.hit_bytes, _MOST
    yield "firstTokenSeconds", facts.first_token_seconds, _MOST
    yield "openBreakers", facts.open_breakers, 1.0
    for name, number in (
        ("tokensPerSecond", facts.known.tokens_per_second),
        ("bandwidth", facts.known.bandwidth),
        ("engineFixedSeconds", facts.known.engine_fixed_seconds),
        ("requestFixedSeconds", facts.known.request_fixed_seconds),
        ("tierBandwidth", facts.bandwidth),
    ):
        if number is not None:
            yield name, number.value, _MOST
            yield f"{name}.high", number.high, _MOST
    if facts.hot is not None:
        shares = {"occupancy", "cold_free_low", "dispatch_share"}
        for each in fields(facts.hot):
            most = 1.0 if each.name in shares else _MOST
            yield f"hot.{each.name}", getattr(facts.hot, each.name), most
