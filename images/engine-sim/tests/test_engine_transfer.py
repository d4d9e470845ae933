"""Prefill to decode when something is wrong: an error or a recompute, as the policy says."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from harness import NIXL_PRODUCER, Engine, prefill, prompt
from servers import eventually, free_port

FAILED = "vllm:nixl_num_failed_transfers_total"
USAGE = "vllm:kv_cache_usage_perc"


@pytest.fixture
def strict_decode(start: Callable[..., Any]) -> Engine:
    consumer = {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
    return start("--disable-hybrid-kv-cache-manager", transfer=consumer).ready()


def wrong_params(right: dict[str, Any], other: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "unknown request": {**right, "remote_request_id": "cmpl-forged"},
        "blocks of another request": {**right, "remote_block_ids": other["remote_block_ids"]},
        "another prompt": other,
        "another engine": {**right, "remote_engine_id": "forged"},
        "nobody listens": {**right, "remote_port": free_port()},
        "too few blocks": {**right, "remote_block_ids": right["remote_block_ids"][:3]},
        "no blocks": {**right, "remote_block_ids": []},
        "text for a port": {**right, "remote_port": "5600"},
        "no host": {**right, "remote_host": None},
    }


def test_wrong_transfer_params_are_recomputed(
    prefill_engine: Engine, decode: Engine, plain: Engine
) -> None:
    text = prompt(101)
    cases = wrong_params(prefill(prefill_engine, text), prefill(prefill_engine, prompt(102)))
    right = plain.text(text)
    for case, params in cases.items():
        decode.forget()
        answer, grown = decode.counted(
            lambda params=params: decode.text(text, kv_transfer_params=params)
        )
        assert answer == right, case
        assert grown[FAILED] == 1, case
        assert grown["vllm:prompt_tokens_by_source_total{local_compute}"] == 1000, case


def test_wrong_transfer_params_fail_under_the_policy_fail(
    prefill_engine: Engine, strict_decode: Engine, plain: Engine
) -> None:
    text = prompt(103)
    right = prefill(prefill_engine, text)
    for case, params in wrong_params(right, prefill(prefill_engine, prompt(104))).items():
        body = {"model": "sim", "prompt": text, "temperature": 0, "kv_transfer_params": params}
        status, answer = strict_decode.post("/v1/completions", body)
        assert status == 500, (case, answer)
    assert strict_decode.text(text, kv_transfer_params=right) == plain.text(text)


def test_engines_with_other_kv_managers_refuse_each_other(
    start: Callable[..., Any], prefill_engine: Engine
) -> None:
    """As in vLLM: LMCacheConnectorV1 turns the hybrid KV manager off, on that engine only."""
    consumer = {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
    engine = start(transfer=consumer).ready()
    params = prefill(prefill_engine, prompt(105))
    body = {"model": "sim", "prompt": prompt(105), "kv_transfer_params": params}
    status, answer = engine.post("/v1/completions", body)
    assert status == 500
    assert "compatibility" in answer["error"]["message"]


def test_a_lease_ends_when_it_is_not_read(
    start: Callable[..., Any], decode: Engine, plain: Engine
) -> None:
    producer = {**NIXL_PRODUCER, "kv_connector_extra_config": {"kv_lease_duration": 1}}
    engine = start("--disable-hybrid-kv-cache-manager", transfer=producer).ready()
    text = prompt(106)
    kept = prefill(engine, text)
    assert engine.metrics()[USAGE] > 0
    eventually("the lease expires", lambda: engine.metrics()[USAGE] == 0, 10)
    assert engine.metrics()["vllm:nixl_num_kv_expired_reqs_total"] == 1
    assert decode.text(text, kv_transfer_params=kept) == plain.text(text)

    read = prefill(engine, prompt(107))
    decode.text(prompt(107), kv_transfer_params=read)
    eventually("read blocks are free at once", lambda: engine.metrics()[USAGE] == 0, 5)
    assert engine.metrics()["vllm:nixl_num_kv_expired_reqs_total"] == 1


def test_garbage_on_the_side_channel_is_ignored(
    prefill_engine: Engine, decode: Engine, plain: Engine
) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x04nope"):
        with socket.create_connection(("127.0.0.1", prefill_engine.side_port)) as connection:
            connection.sendall(garbage)
            connection.settimeout(10)
            assert connection.recv(1) == b""
    text = prompt(108)
    params = prefill(prefill_engine, text)
    assert decode.text(text, kv_transfer_params=params) == plain.text(text)
