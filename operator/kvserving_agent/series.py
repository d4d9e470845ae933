"""Which series of an engine's page become which number of the facts (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

# No count of tokens, bytes or requests reaches this; it is also what a 64-bit reader can hold.
LARGEST = float(2**63)

Series = Mapping[str, list[float | None]]


class Unit(Enum):
    """What a number counts, which decides what is absurd and how it is written."""

    COUNT = "whole number"
    SECONDS = "seconds, or thousandths"
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
# running, waiting and kvCacheUsage are null on an engine that is well (seen on 0.32). LMCache's
# numbers there are up to 10 s older than vLLM's: it publishes them that seldom.
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

# Of an engine that no store keeps records in: from these follow its mean loads and steps.
STOCK_NUMBERS: Mapping[str, Number] = {
    "prefills": Number("vllm:request_prefill_time_seconds_count"),
    "prefillSeconds": Number("vllm:request_prefill_time_seconds_sum", Unit.SECONDS),
    "queueSeconds": Number("vllm:request_queue_time_seconds_sum", Unit.SECONDS),
    "computedTokens": Number("vllm:request_prefill_kv_computed_tokens_sum"),
    "tierReads": Number("lmcache:remote_time_to_get_sync_count"),
    "tierReadMs": Number("lmcache:remote_time_to_get_sync_sum", Unit.SECONDS),
    "lookups": Number("lmcache:time_to_lookup_count"),
    "lookupSeconds": Number("lmcache:time_to_lookup_sum", Unit.SECONDS),
    "retrieves": Number("lmcache:time_to_retrieve_count"),
    "retrievedTokens": Number("lmcache:num_hit_tokens_total"),
    "retrieveSeconds": Number("lmcache:time_to_retrieve_sum", Unit.SECONDS),
    "storedTokens": Number("lmcache:num_stored_tokens_total"),
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


def table_of(engine_type: str, *, stores: bool) -> Mapping[str, Number]:
    """The numbers of an engine of this type; ``stores``: it is told to carry the sharded store."""
    stock = engine_type == "VLLM" and not stores
    return {**NUMBERS[engine_type], **(STOCK_NUMBERS if stock else {})}


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
PREFILL_LATENCIES = frozenset({"request"})
"""Those that say something of a prefill engine."""

# Not a number of the facts: the start id where /proc tells nothing.
START_TIME = "process_start_time_seconds"


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
