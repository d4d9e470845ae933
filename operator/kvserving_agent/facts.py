"""What is known of the engine, turned into the answer of `GET /v1/facts` (pure).

The answer is one JSON object of 2 to 3 KB, and of 4 to 6 KB with a store; the operator reads it,
nobody else should need to:

- `schema`: 1. A consumer refuses another number; keys are only added within one.
- `role`, `podUid`: who is talking.
- `engine`: `type`; `up` (true, false, or null when no answer is fresh); `ready` (what /readyz
  says); `version` and `model` (first served name) or null; `startId` (changes with each start of
  the engine process, see identity.py; null while it does not listen) and `startIdSource`;
  `healthAgeSeconds`; `hung` (healthy, but requests wait and nothing gets done, see progress.py;
  null when it cannot be told) and `noProgressSeconds`, for how long at least that has been so (null
  unless something waits).
- `capabilities`: names of what the engine can do beyond a stock one, as the store in it says; a
  stock one has none.
- `store`, `hot`: the sharded store and GraniKV; null for an engine that is not told to carry one.
  Else `startId` (of the store: it names what settings are sent to), `closed` (why nothing is loaded
  and nothing stored; null while open), `settings` in force `since` (Unix seconds), `counters`
  (busy_share of the store is u), `recent` loads and steps (states.py; null where there are none),
  the `ageSeconds` of all that, whether it is `stale`, and `lastError` (a Fault) or null after a
  good answer. Without an answer all but lastError are null.
- `scrape`: `ageSeconds` of the numbers, whether they are `stale`, `errors` since the agent started,
  `lastError` (a Fault) or null after a good one.
- `numbers`: each is `{"value", "ageSeconds"}`. Missing is not zero: a number that the page lacks,
  or shows as NaN, infinite, negative or absurd in any of its series, is null with a null age. All
  belong to the life of the engine that `startId` names: none outlives a restart.

- `latencies`: `firstToken`, `request` (whole) and `interToken`, each null or `{"count",
  "sumSeconds", "buckets", "ageSeconds"}` since the engine started. Rows of `buckets` are [lower,
  upper, count], upper null without one, and can be added over pods (latency.py).

Ages count from when the question was sent (so they never understate) on the monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from kvserving_agent import states
from kvserving_agent.identity import StartId
from kvserving_agent.latency import Histogram
from kvserving_agent.progress import Stall
from kvserving_agent.states import StoreState

SCHEMA = 1

# No count of tokens, bytes or requests reaches this; it is also what a 64-bit reader can hold.
LARGEST = float(2**63)

Series = Mapping[str, list[float | None]]


class Fault(StrEnum):
    """Why a question to the engine failed; the label of the error counters."""

    REFUSED = "Refused"
    TIMEOUT = "Timeout"
    STATUS = "Status"
    TOO_LARGE = "TooLarge"
    MALFORMED = "Malformed"
    RESTARTED = "Restarted"


class Unit(Enum):
    """What a number counts, which decides what is absurd and how it is written."""

    COUNT = "whole number"
    SECONDS = "seconds"
    RATIO = "0 to 1"


@dataclass(frozen=True)
class Number:
    """One number of the facts: where it comes from, and how its series become one value."""

    metric: str
    unit: Unit = Unit.COUNT
    combine: Callable[[list[float]], float] = math.fsum


# vLLM's names: vllm/v1/metrics/loggers.py and .../kv_connector/v1/nixl/stats.py; LMCache's:
# lmcache/observability.py. A data-parallel engine has one series a rank: counts add up, and
# the fullest rank stands for the KV cache, since it is the one that preempts. Under
# PROMETHEUS_MULTIPROC_DIR vLLM shows a gauge only once it was set: before the first request
# running, waiting and kvCacheUsage are null on an engine that is well (seen on 0.32).
VLLM_NUMBERS: Mapping[str, Number] = {
    "running": Number("vllm:num_requests_running"),
    "waiting": Number("vllm:num_requests_waiting"),
    "kvCacheUsage": Number("vllm:kv_cache_usage_perc", Unit.RATIO, max),
    "promptTokens": Number("vllm:prompt_tokens_total"),
    "promptTokensCached": Number("vllm:prompt_tokens_cached_total"),
    "generationTokens": Number("vllm:generation_tokens_total"),
    "requestsFinished": Number("vllm:request_success_total"),
    "preemptions": Number("vllm:num_preemptions_total"),
    "prefixCacheQueries": Number("vllm:prefix_cache_queries_total"),
    "prefixCacheHits": Number("vllm:prefix_cache_hits_total"),
    "externalPrefixCacheQueries": Number("vllm:external_prefix_cache_queries_total"),
    "externalPrefixCacheHits": Number("vllm:external_prefix_cache_hits_total"),
    "nixlTransfers": Number("vllm:nixl_bytes_transferred_count"),
    "nixlBytes": Number("vllm:nixl_bytes_transferred_sum"),
    "nixlTransferSeconds": Number("vllm:nixl_xfer_time_seconds_sum", Unit.SECONDS),
    "nixlFailedTransfers": Number("vllm:nixl_num_failed_transfers_total"),
    "nixlFailedNotifications": Number("vllm:nixl_num_failed_notifications_total"),
    "nixlExpiredRequests": Number("vllm:nixl_num_kv_expired_reqs_total"),
    "nixlLateNotifications": Number("vllm:nixl_num_notifications_after_expiry_total"),
    "tierReadBytes": Number("lmcache:num_remote_read_bytes_total"),
    "tierWriteBytes": Number("lmcache:num_remote_write_bytes_total"),
}

# SGLang's names: sglang/srt/observability/metrics_collector.py. Its pages count requests where
# vLLM's count transfers, and no bytes: what a page cannot tell has no row, and so is no key.
SGLANG_NUMBERS: Mapping[str, Number] = {
    "running": Number("sglang:num_running_reqs"),
    "waiting": Number("sglang:num_queue_reqs"),
    "kvCacheUsage": Number("sglang:token_usage", Unit.RATIO, max),
    "promptTokens": Number("sglang:prompt_tokens_total"),
    "promptTokensCached": Number("sglang:cached_tokens_total"),
    "generationTokens": Number("sglang:generation_tokens_total"),
    "requestsFinished": Number("sglang:num_requests_total"),
    "preemptions": Number("sglang:num_retracted_requests_total"),
    "nixlFailedTransfers": Number("sglang:num_transfer_failed_reqs_total"),
}

NUMBERS: Mapping[str, Mapping[str, Number]] = {"VLLM": VLLM_NUMBERS, "SGLang": SGLANG_NUMBERS}
"""By the engine's type, as the settings name it."""

# The same names behind either prefix: vllm/v1/metrics/loggers.py, SGLang's as above.
_LATENCIES: Mapping[str, str] = {
    "firstToken": "time_to_first_token_seconds",
    "request": "e2e_request_latency_seconds",
    "interToken": "inter_token_latency_seconds",
}
LATENCIES: Mapping[str, Mapping[str, str]] = {
    "VLLM": {name: f"vllm:{family}" for name, family in _LATENCIES.items()},
    "SGLang": {name: f"sglang:{family}" for name, family in _LATENCIES.items()},
}
"""Histogram families by the engine's type."""

# Not a number of the facts: the start id where /proc tells nothing.
START_TIME = "process_start_time_seconds"


@dataclass(frozen=True)
class Sample:
    """The numbers of one scrape; None where the page had nothing usable."""

    at: float
    values: Mapping[str, float | None]
    latencies: Mapping[str, Histogram | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the engine answered to a question that was sent at a time (monotonic seconds)."""

    at: float
    good: bool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that is known of one life of the engine, and of the agent's work, at one moment."""

    start: StartId | None = None
    health: Answer | None = None
    models: Answer | None = None
    model: str | None = None
    version: str | None = None
    sample: Sample | None = None
    store: StoreState | None = None
    store_error: Fault | None = None
    hot: StoreState | None = None
    hot_error: Fault | None = None
    stall: Stall | None = None
    scrape_errors: int = 0
    last_error: Fault | None = None
    stopping: bool = False


def is_up(known: Snapshot, now: float, stale_after: float) -> bool | None:
    """Whether the engine is healthy; None when the last answer is too old to tell."""
    if known.health is None or now - known.health.at > stale_after:
        return None
    return known.health.good


def is_ready(known: Snapshot, now: float, stale_after: float) -> bool:
    """Whether the pod may be sent requests: healthy, and it listed a model not long before.

    The list is asked for less often than health. It is measured against the last health answer, so
    that a silent engine is given the same time whenever its list was asked for last.
    """
    health, models = known.health, known.models
    return (
        not known.stopping
        and is_up(known, now, stale_after) is True
        and health is not None
        and models is not None
        and models.good
        and health.at - models.at <= stale_after
    )


def numbers(series: Series, table: Mapping[str, Number]) -> dict[str, float | None]:
    """The value of each number of the table, None where the page gives no honest one."""
    return {name: _value(series.get(number.metric), number) for name, number in table.items()}


def _value(values: list[float | None] | None, number: Number) -> float | None:
    if not values or not all(v is not None and 0 <= v < LARGEST for v in values):
        return None
    value = number.combine([v for v in values if v is not None])
    if value >= LARGEST or (number.unit is Unit.RATIO and value > 1):
        return None
    return int(value) if number.unit is Unit.COUNT else round(value, 6)


def render(
    known: Snapshot,
    *,
    now: float,
    role: str,
    engine_type: str,
    pod_uid: str,
    stale_after: float,
    table: Mapping[str, Number],
    stores: bool = False,
    hots: bool = False,
) -> dict[str, object]:
    """The answer of `GET /v1/facts`; `stores`, `hots`: what the engine is told to carry."""
    sample = known.sample
    store = states.render(known.store, known.store_error, now, stale_after)
    hot = states.render(known.hot, known.hot_error, now, stale_after)
    return {
        "schema": SCHEMA,
        "role": role,
        "podUid": pod_uid,
        "engine": {"type": engine_type, **_engine(known, now, stale_after)},
        "capabilities": _capabilities(known),
        "store": store if stores else None,
        "hot": hot if hots else None,
        "scrape": {
            "ageSeconds": _age(sample.at if sample else None, now),
            "stale": now - sample.at > stale_after if sample else None,
            "errors": known.scrape_errors,
            "lastError": known.last_error,
        },
        "numbers": {name: _dated(sample, name, now) for name in table},
        "latencies": {name: _latency(sample, name, now) for name in _LATENCIES},
    }


def _engine(known: Snapshot, now: float, stale_after: float) -> dict[str, object]:
    start = known.start
    return {
        "up": is_up(known, now, stale_after),
        "ready": is_ready(known, now, stale_after),
        "version": known.version,
        "model": known.model,
        "startId": start.value if start else None,
        "startIdSource": start.source.value if start else None,
        "healthAgeSeconds": _age(known.health.at if known.health else None, now),
        **_progress(known, now, stale_after),
    }


def _progress(known: Snapshot, now: float, stale_after: float) -> dict[str, object]:
    sample, stall = known.sample, known.stall
    fresh = sample is not None and now - sample.at <= stale_after
    if not fresh or sample is None or not is_up(known, now, stale_after):
        return {"hung": None, "noProgressSeconds": None}
    if stall is None:
        idle = sample.values.get("waiting") == 0
        return {"hung": False if idle else None, "noProgressSeconds": None}
    return {"hung": stall.hung, "noProgressSeconds": _age(stall.since, sample.at)}


def _capabilities(known: Snapshot) -> list[str]:
    present = (state.capabilities for state in (known.store, known.hot) if state is not None)
    return sorted({name for names in present for name in names})


def _latency(sample: Sample | None, name: str, now: float) -> dict[str, object] | None:
    found = sample.latencies.get(name) if sample else None
    if sample is None or found is None:
        return None
    return {**found.data(), "ageSeconds": _age(sample.at, now)}


def _dated(sample: Sample | None, name: str, now: float) -> dict[str, float | None]:
    value = sample.values.get(name) if sample else None
    at = sample.at if sample and value is not None else None
    return {"value": value, "ageSeconds": _age(at, now)}


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(now - at, 1)
