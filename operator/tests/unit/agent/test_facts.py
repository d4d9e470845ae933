from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_agent import facts, series
from kvserving_agent.facts import Answer, Fault, Sample, Snapshot
from kvserving_agent.identity import Source, StartId
from kvserving_agent.latency import Histogram
from kvserving_agent.series import LARGEST, VLLM_NUMBERS

NOW = 1000.0
STALE = 20.0

WELL = Snapshot(
    start=StartId("0123456789abcdef", Source.SOCKET),
    health=Answer(NOW - 1, good=True),
    models=Answer(NOW - 8, good=True),
    model="glm-5.3",
    version="0.33.0",
    sample=Sample(NOW - 4, {"running": 3, "waiting": 0, "kvCacheUsage": 0.25}),
)


def render(
    known: Snapshot,
    now: float = NOW,
    *,
    stores: bool = False,
    table: Mapping[str, series.Number] = VLLM_NUMBERS,
) -> dict[str, Any]:
    return facts.render(
        known,
        now=now,
        role="prefill",
        engine_type="VLLM",
        pod_uid="6f2c0a52-30c5-4b0e-8c6e-0f3f8f3c9d11",
        stale_after=STALE,
        table=table,
        latencies=series.PREFILL_LATENCIES,
        stores=stores,
    )


def test_ready_needs_health_and_a_model_both_fresh() -> None:
    assert facts.is_ready(WELL, NOW, STALE)
    for worse in (
        {"health": None},
        {"models": None},
        {"health": Answer(NOW, good=False)},
        {"models": Answer(NOW, good=False)},
        {"health": Answer(NOW - STALE - 0.1, good=True)},
        {"models": Answer(NOW - 1 - STALE - 0.1, good=True)},
        {"stopping": True},
    ):
        assert not facts.is_ready(replace(WELL, **worse), NOW, STALE), worse


def test_silence_is_given_the_same_time_whenever_the_models_were_listed() -> None:
    silent = replace(WELL, models=Answer(NOW - 11, good=True))
    last = NOW - 1 + STALE
    assert facts.is_ready(silent, last, STALE)
    assert not facts.is_ready(silent, last + 0.1, STALE)


def test_an_old_answer_means_unknown_and_not_down() -> None:
    assert facts.is_up(WELL, NOW, STALE) is True
    assert facts.is_up(replace(WELL, health=Answer(NOW, good=False)), NOW, STALE) is False
    assert facts.is_up(WELL, NOW + STALE, STALE) is None
    assert facts.is_up(Snapshot(), NOW, STALE) is None


def test_ranks_add_up_and_the_fullest_stands_for_the_cache() -> None:
    page: dict[str, list[float | None]] = {
        "vllm:num_requests_running": [2.0, 3.0],
        "vllm:kv_cache_usage_perc": [0.25, 0.75],
    }
    values = series.numbers(page, VLLM_NUMBERS)
    assert (values["running"], values["kvCacheUsage"]) == (5, 0.75)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf, -1.0, LARGEST, 1e300])
def test_one_bad_series_takes_its_number_away_and_no_other(bad: float | None) -> None:
    page = {"vllm:num_requests_running": [1.0, bad], "vllm:num_requests_waiting": [4.0]}
    values = series.numbers(page, VLLM_NUMBERS)
    assert values["running"] is None
    assert values["waiting"] == 4


def test_a_share_above_one_is_no_share() -> None:
    assert series.numbers({"vllm:kv_cache_usage_perc": [1.5]}, VLLM_NUMBERS)["kvCacheUsage"] is None


def test_a_sum_beyond_all_bounds_is_no_number() -> None:
    half = LARGEST * 0.75
    assert (
        series.numbers({"vllm:prompt_tokens_total": [half, half]}, VLLM_NUMBERS)["promptTokens"]
        is None
    )


def test_missing_is_null_and_zero_is_zero() -> None:
    numbers = render(WELL)["numbers"]
    assert numbers["waiting"] == 0
    assert numbers["nixlBytes"] is None
    assert set(numbers) == set(VLLM_NUMBERS)


def test_ages_grow_while_nothing_is_scraped() -> None:
    later = render(WELL, NOW + 100)
    assert later["numbers"]["running"] == 3
    assert (later["scrape"]["ageSeconds"], later["scrape"]["stale"]) == (104.0, True)
    assert later["engine"]["up"] is None


def test_nothing_known_is_all_null() -> None:
    answer = render(Snapshot())
    assert answer["engine"] == {
        "type": "VLLM",
        "up": None,
        "ready": False,
        "version": None,
        "model": None,
        "startId": None,
        "startIdSource": None,
        "healthAgeSeconds": None,
        "hung": None,
        "noProgressSeconds": None,
    }
    scrape = {"ageSeconds": None, "stale": None, "errors": 0, "lastError": None}
    assert answer["scrape"] == scrape
    assert answer["latencies"] == {"request": None}
    assert set(answer["numbers"].values()) == {None}


def test_a_vllm_without_a_store_tells_what_its_loads_took() -> None:
    more = set(series.STOCK_NUMBERS)
    assert set(series.table_of("VLLM", stores=False)) == set(VLLM_NUMBERS) | more
    assert set(series.table_of("VLLM", stores=True)) == set(VLLM_NUMBERS)
    assert set(series.table_of("SGLang", stores=False)) == set(series.SGLANG_NUMBERS)


def test_the_answer_of_a_stock_engine_is_two_and_a_half_kilobytes_at_most() -> None:
    table = series.table_of("VLLM", stores=False)
    values = dict.fromkeys(table, int(LARGEST) - 1) | {"kvCacheUsage": 0.123456}
    counts = {"request": Histogram((*(i / 8 for i in range(22)), None), (10**6,) * 22, 1e6)}
    full = replace(WELL, sample=Sample(NOW - 12.5, values, counts), last_error=Fault.TIMEOUT)
    assert 1000 < len(json.dumps(render(full, table=table), separators=(",", ":"))) < 2500


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from([n.metric for n in VLLM_NUMBERS.values()]),
        st.lists(st.none() | st.floats(), max_size=4),
    )
)
def test_whatever_a_page_shows_the_answer_is_honest_json(
    page: dict[str, list[float | None]],
) -> None:
    known = replace(WELL, sample=Sample(NOW, series.numbers(page, VLLM_NUMBERS)))
    text = json.dumps(render(known), allow_nan=False)
    for number in json.loads(text)["numbers"].values():
        assert number is None or 0 <= number < LARGEST


def test_sglang_s_numbers_have_the_keys_of_vllm_s():
    assert set(series.SGLANG_NUMBERS) <= set(VLLM_NUMBERS)
    page = {"sglang:num_running_reqs": [2.0, 1.0], "sglang:token_usage": [0.25, 0.5]}
    values = series.numbers(page, series.NUMBERS["SGLang"])
    assert (values["running"], values["kvCacheUsage"]) == (3, 0.5)
    assert values["waiting"] is None
