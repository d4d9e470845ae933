"""One question, one answer: whoever computes the KV, and wherever it comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness import CHUNK, LMCACHE, NIXL_PRODUCER, Engine, multi, prefill, prompt
from servers import SpoilingProxy, Valkey, eventually

HITS = "vllm:external_prefix_cache_hits_total"
BYTES_PER_TOKEN = 256


@pytest.fixture(scope="module")
def two_ranks(shared_start: Callable[..., Any], tier_url: str) -> Engine:
    """A prefill with two ranks that keeps nothing in memory: it always reads from the tier."""
    return shared_start(
        "--prefill-context-parallel-size",
        "2",
        transfer=multi("recompute", NIXL_PRODUCER, LMCACHE),
        tier=tier_url,
        environment={"LMCACHE_LOCAL_CPU": "false"},
    ).ready()


def stored(tier: Valkey, keys: int) -> None:
    eventually(f"{keys} keys are stored", lambda: tier.client.dbsize() >= keys)


def test_decode_through_nixl_equals_a_plain_engine(
    prefill_engine: Engine, decode: Engine, plain: Engine
) -> None:
    text = prompt(1)
    params = prefill(prefill_engine, text)
    answer, grown = decode.counted(lambda: decode.complete(text, kv_transfer_params=params))
    assert answer["choices"][0]["text"] == plain.text(text)
    # As in vLLM: the client is not told of tokens that came over NIXL.
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert grown["vllm:nixl_bytes_transferred_sum"] == 16 * 64 * BYTES_PER_TOKEN
    assert grown["vllm:prompt_tokens_by_source_total{external_kv_transfer}"] == 1000
    assert grown["vllm:prompt_tokens_by_source_total{local_compute}"] == 0
    assert grown[HITS] == 1000


def test_ranks_and_chunks_of_a_prompt_do_not_change_the_answer(
    prefill_engine: Engine, plain: Engine
) -> None:
    for seed, tokens in ((2, 1), (3, 63), (4, 64), (5, 20_000)):
        text = prompt(seed, tokens)
        assert prefill_engine.text(text) == plain.text(text)


def test_local_prefix_hit_keeps_the_answer(plain: Engine) -> None:
    text = prompt(6)
    first = plain.text(text)
    again, grown = plain.counted(lambda: plain.complete(text))
    assert again["choices"][0]["text"] == first
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 960
    assert grown["vllm:prefix_cache_hits_total"] == 960
    assert grown["vllm:prefix_cache_queries_total"] == 1000
    assert grown["vllm:prompt_tokens_by_source_total{local_cache_hit}"] == 960


def test_another_process_with_other_ranks_answers_from_the_tier(
    prefill_engine: Engine, two_ranks: Engine, plain: Engine, tier: Valkey
) -> None:
    text = prompt(7)
    before = tier.client.dbsize()
    prefill_engine.text(text)
    stored(tier, before + 1000 // CHUNK)
    answer, grown = two_ranks.counted(lambda: two_ranks.complete(text))
    assert grown[HITS] == 960
    assert grown["vllm:external_prefix_cache_queries_total"] == 1000
    assert grown["vllm:prompt_tokens_cached_by_source_total{external_unspecified}"] == 960
    assert grown["vllm:prompt_tokens_by_source_total{local_compute}"] == 40
    assert answer["choices"][0]["text"] == plain.text(text)
    assert tier.client.dbsize() == before + 1000 // CHUNK


@pytest.mark.parametrize("chunk", [0, 7, 14])
def test_a_spoiled_byte_in_the_tier_changes_the_answer(
    chunk: int, prefill_engine: Engine, two_ranks: Engine, plain: Engine, tier: Valkey
) -> None:
    """The control: hits are counted as before, and the answer is wrong."""
    text = prompt(20 + chunk)
    before = tier.keys()
    prefill_engine.text(text)
    stored(tier, len(before) + 15)
    # Keys carry a hash of the prefix, not a number: spoil them one by one until one is `chunk`.
    for key in sorted(tier.keys() - before)[chunk : chunk + 1]:
        value = bytearray(tier.client.get(key))
        value[len(value) // 2] ^= 1
        tier.client.set(key, bytes(value))
    answer, grown = two_ranks.counted(lambda: two_ranks.complete(text))
    assert grown[HITS] == 960
    assert answer["choices"][0]["text"] != plain.text(text)


def test_a_spoiled_byte_on_the_way_to_decode_changes_the_answer(
    prefill_engine: Engine, decode: Engine, plain: Engine
) -> None:
    text = prompt(40)
    params = prefill(prefill_engine, text)
    proxy = SpoilingProxy(prefill_engine.side_port, spoil_at=100_000)
    params["remote_port"] = proxy.port
    answer, grown = decode.counted(lambda: decode.complete(text, kv_transfer_params=params))
    proxy.close()
    assert grown["vllm:prompt_tokens_by_source_total{external_kv_transfer}"] == 1000
    assert answer["choices"][0]["text"] != plain.text(text)
    decode.forget()
    assert decode.text(text) == plain.text(text)


def test_stream_chat_and_stop(plain: Engine) -> None:
    text = prompt(50)
    whole = plain.complete(text, 30, return_token_ids=True)["choices"][0]
    events = list(plain.stream(text, 30, stream_options={"include_usage": True}))
    assert events.pop() == {"done": True}
    assert events.pop()["usage"]["completion_tokens"] == 30
    assert "".join(event["choices"][0]["text"] for event in events) == whole["text"]
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert bytes(whole["token_ids"]).decode() == whole["text"]

    stop = whole["text"][10:12]
    cut = whole["text"].index(stop)
    stopped = plain.complete(text, 30, stop=stop)["choices"][0]
    assert stopped["text"] == whole["text"][:cut]
    assert stopped["finish_reason"] == "stop"

    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "sim", "messages": messages, "max_tokens": 8, "temperature": 0}
    status, answer = plain.post("/v1/chat/completions", body)
    assert status == 200
    assert len(answer["choices"][0]["message"]["content"]) == 8


def test_sampling_follows_its_seed(plain: Engine) -> None:
    text = prompt(51)
    first = plain.text(text, temperature=1, seed=7)
    assert plain.text(text, temperature=1, seed=7) == first
    assert plain.text(text, temperature=1, seed=8) != first


def test_grouped_query_attention_keeps_each_rank_apart(
    start: Callable[..., Any], tier: Valkey, tier_url: str, plain: Engine
) -> None:
    engine = start(
        "-tp",
        "2",
        transfer={**LMCACHE, "kv_load_failure_policy": "recompute"},
        tier=tier_url,
        environment={"KVSERVING_SIM_ATTENTION": "GQA", "LMCACHE_LOCAL_CPU": "false"},
    ).ready()
    text = prompt(60)
    before = tier.client.dbsize()
    assert engine.text(text) == plain.text(text)
    stored(tier, before + 30)
    engine.forget()
    answer, grown = engine.counted(lambda: engine.complete(text))
    assert grown[HITS] == 960
    assert answer["choices"][0]["text"] == plain.text(text)


def test_what_it_is_is_said_everywhere(prefill_engine: Engine) -> None:
    assert "engine.sim" in prefill_engine.get("/version")["version"]
    assert prefill_engine.get("/v1/models")["data"][0]["owned_by"] == "kvserving-engine-sim"
    assert prefill_engine.metrics()["kvserving_engine_sim_info"] == 1
    assert "SIMULATION" in prefill_engine.log.read_text()
    names = set(prefill_engine.metrics())
    assert any(name.startswith("lmcache:num_stored_tokens") for name in names)


def test_bad_requests_are_refused(plain: Engine) -> None:
    for body, status in (
        ({"model": "other", "prompt": "x"}, 404),
        ({"model": "sim", "prompt": ""}, 400),
        ({"model": "sim", "prompt": [999]}, 400),
        ({"model": "sim", "prompt": "x", "max_tokens": 10**9}, 400),
        ({"model": "sim", "prompt": "x", "kv_transfer_params": "y"}, 400),
        ({"model": "sim", "prompt": "x", "n": 2}, 400),
        (b"{", 400),
        (b"[]", 400),
    ):
        answered, answer = plain.post("/v1/completions", body)
        assert answered == status, (body, answer)
        assert answer["error"]["code"] == status, json.dumps(answer)
