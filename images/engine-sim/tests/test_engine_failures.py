"""What engine-sim survives, and how it ends when it does not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import LMCACHE, NIXL_PRODUCER, Engine, multi, prompt
from servers import Valkey, eventually, free_port

RUNNING = "vllm:num_requests_running"
USAGE = "vllm:kv_cache_usage_perc"


def in_background(target: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(target()))
    thread.start()
    return thread, results


def test_client_that_leaves_frees_its_request(plain: Engine) -> None:
    stream = plain.stream(prompt(109), 20_000)
    next(stream)
    assert eventually("it runs", lambda: plain.metrics()[RUNNING] == 1)
    stream.close()
    eventually("it is gone", lambda: plain.metrics()[RUNNING] == 0 == plain.metrics()[USAGE])
    assert plain.metrics()["vllm:request_success_total{abort}"] >= 1


def test_too_small_a_cache_preempts_and_answers_rightly(
    start: Callable[..., Any], plain: Engine
) -> None:
    engine = start("--max-model-len", "1024", "--num-gpu-blocks-override", "24").ready()
    texts = [prompt(110 + n, 400) for n in range(4)]
    jobs = [in_background(lambda text=text: engine.text(text, 300)) for text in texts]
    for thread, _ in jobs:
        thread.join()
    assert [results[0] for _, results in jobs] == [plain.text(text, 300) for text in texts]
    assert engine.metrics()["vllm:num_preemptions_total"] > 0
    assert engine.metrics()[USAGE] == 0


@pytest.mark.parametrize("scheme", ["resp", "redis"])
def test_tier_dies_and_comes_back(
    scheme: str, start: Callable[..., Any], tmp_path: Path, plain: Engine
) -> None:
    directory = tmp_path / "valkey"
    directory.mkdir()
    server = Valkey(directory)
    login = "engine:not-a-real-secret@" if scheme == "redis" else ""
    engine = start(
        "--prefill-context-parallel-size",
        "2",
        transfer={**LMCACHE, "kv_load_failure_policy": "recompute"},
        tier=f"{scheme}://{login}127.0.0.1:{server.port}",
        environment={"LMCACHE_LOCAL_CPU": "false"},
    ).ready()
    right = {seed: plain.text(prompt(seed)) for seed in range(120, 126)}
    assert engine.text(prompt(120)) == right[120]
    eventually("it is stored", lambda: server.client.dbsize() >= 15)
    engine.forget()
    _, grown = engine.counted(lambda: engine.text(prompt(120)))
    assert grown["vllm:external_prefix_cache_hits_total"] == 960

    server.kill()
    for seed in range(120, 125):
        engine.forget()
        began = time.monotonic()
        assert engine.text(prompt(seed)) == right[seed]
        # LMCache's lookup timeout is 3 s; the rest is for a busy machine.
        assert time.monotonic() - began < 15
    assert engine.status("/health") == 200
    server.start()
    assert engine.text(prompt(125)) == right[125]
    if scheme == "redis":
        # LMCache's client for resp:// never connects again.
        eventually("new KV is stored", lambda: server.client.dbsize() > 0)
    server.kill()


def test_missing_tier_does_not_keep_it_from_serving(
    start: Callable[..., Any], plain: Engine
) -> None:
    engine = start(
        transfer={**LMCACHE, "kv_load_failure_policy": "recompute"},
        tier=f"resp://127.0.0.1:{free_port()}",
    ).ready()
    assert engine.text(prompt(130)) == plain.text(prompt(130))


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_kv_that_is_promised_but_gone(
    policy: str, start: Callable[..., Any], tier: Valkey, plain: Engine
) -> None:
    """Over redis:// a chunk is two keys: the lookup finds one, the load misses the other."""
    engine = start(
        "--prefill-context-parallel-size",
        "2",
        transfer=multi(policy, NIXL_PRODUCER, LMCACHE),
        tier=f"redis://engine:not-a-real-secret@127.0.0.1:{tier.port}",
        environment={"LMCACHE_LOCAL_CPU": "false"},
    ).ready()
    text = prompt(131 if policy == "fail" else 132)
    before = tier.keys()
    engine.text(text)
    eventually("it is stored", lambda: len(tier.keys() - before) == 30)
    values = sorted(key for key in tier.keys() - before if key.endswith(b"kv_bytes"))
    tier.client.delete(*values[::2])
    engine.forget()
    ask = {"model": "sim", "prompt": text, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    (status, answer), grown = engine.counted(lambda: engine.post("/v1/completions", ask))
    assert grown["vllm:external_prefix_cache_hits_total"] == 960
    if policy == "fail":
        assert status == 500
    else:
        assert answer["choices"][0]["text"] == plain.text(text)
        assert grown["vllm:prompt_tokens_by_source_total{local_compute}"] > 40
    engine.forget()
    # What was computed on the way is stored and right.
    assert engine.text(prompt(133)) == plain.text(prompt(133))


def test_sigterm_lets_running_requests_end(start: Callable[..., Any]) -> None:
    environment = {"KVSERVING_SIM_INTER_TOKEN_SECONDS": "0.02"}
    engine = start("--shutdown-timeout", "60", environment=environment).ready()
    stream = engine.stream(prompt(140, 10), 150)
    next(stream)
    engine.terminate()
    eventually("new requests are refused", lambda: _refused(engine), 5)
    assert engine.status("/health") == 200
    events = list(stream)
    assert events[-1] == {"done": True}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert engine.process.wait(20) == 0


def _refused(engine: Engine) -> bool:
    status, _ = engine.post("/v1/completions", {"model": "sim", "prompt": "x", "max_tokens": 1})
    return status == 503


def test_sigterm_without_a_timeout_cuts_at_once(start: Callable[..., Any]) -> None:
    engine = start(environment={"KVSERVING_SIM_INTER_TOKEN_SECONDS": "0.05"}).ready()
    stream = engine.stream(prompt(141, 10), 1000)
    next(stream)
    began = time.monotonic()
    engine.terminate()
    assert {"done": True} not in list(stream)
    assert engine.process.wait(20) == 0
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("seconds", [0.2, 1.5, 4.0])
def test_sigterm_while_starting_ends_it(
    seconds: float, start: Callable[..., Any], tier_url: str
) -> None:
    engine = start(
        "--prefill-context-parallel-size",
        "2",
        transfer=multi("fail", NIXL_PRODUCER, LMCACHE),
        tier=tier_url,
    )
    # Not synchronisation: the moment is the input, and every moment must do.
    time.sleep(seconds)
    children = engine.workers()
    engine.terminate()
    engine.process.wait(15)
    eventually("no worker is left", lambda: not any(map(_alive, children)))


def _alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("busy", [False, True])
def test_a_dead_worker_ends_the_engine(*, busy: bool, start: Callable[..., Any]) -> None:
    environment = {"KVSERVING_SIM_INTER_TOKEN_SECONDS": "0.05"}
    engine = start("--tensor-parallel-size", "2", environment=environment).ready()
    workers = engine.workers()
    assert len(workers) == 2
    events: list[dict[str, Any]] = []
    if busy:
        stream = engine.stream(prompt(150, 10), 1000)
        next(stream)
    os.kill(workers[1], signal.SIGKILL)
    if busy:
        events = list(stream)
        assert "error" in events[-2]
    eventually("/health is 503", lambda: engine.status("/health") == 503, 10)
    assert engine.process.wait(20) == 1
    eventually("no worker is left", lambda: not any(map(_alive, workers)))


def test_killed_front_takes_its_workers_along(start: Callable[..., Any]) -> None:
    engine = start("--tensor-parallel-size", "2").ready()
    workers = engine.workers()
    engine.process.kill()
    eventually("no worker is left", lambda: not any(map(_alive, workers)), 10)


def test_what_vllm_would_refuse_ends_the_start(start: Callable[..., Any]) -> None:
    both = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    cases = [
        start("--no-such-flag"),
        start("--prefill-context-parallel-size", "2", transfer=both),
        start(transfer={"kv_connector": "MooncakeConnector", "kv_role": "kv_both"}),
        start(environment={"KVSERVING_SIM_TOKENS_PER_SECOND": "fast"}),
    ]
    assert [case.process.wait(60) for case in cases] == [2, 2, 2, 2]
