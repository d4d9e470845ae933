"""The engine-cpu image at work, with the router and valkey images, without a cluster.

Not collected by itself: `pytest -s images/engine-cpu/tests/proof_engine_cpu.py` as root, after
`python -m cluster build engine-cpu router valkey`. Starts six engines, at most five at a time;
18 minutes on two busy cores. Prints the figures that docs/images.md reports.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
import urllib.request
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import pytest
from contained import Container, free_port, healthy, wait_for

MODEL = "/opt/kvserving/models/tiny-gqa"
START_SECONDS = 600.0
PASSWORD = "proof-only"
ACL = f"""user default off
user engine on >{PASSWORD} -@all +get +set +exists +del +unlink +ping +hello +auth +select \
+client|setinfo +client|setname +client|id resetchannels ~*
"""
NIXL = {"kv_connector": "NixlConnector", "kv_buffer_device": "cpu"}
PREFILL = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_producer",
    "kv_load_failure_policy": "recompute",
    "kv_connector_extra_config": {
        "connectors": [
            {**NIXL, "kv_role": "kv_producer"},
            {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
        ]
    },
}
DECODE = {**NIXL, "kv_role": "kv_consumer", "kv_load_failure_policy": "recompute"}


class Server:
    """A running HTTP server of ours."""

    def __init__(self, container: Container, port: int) -> None:
        self.container, self.port = container, port

    def ask(self, prompt: str, tokens: int = 24) -> tuple[str, float]:
        """A greedy completion and the seconds that it took."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps({**body, "ignore_eos": True}).encode(),
            {"content-type": "application/json"},
        )
        start = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            text: str = json.load(answer)["choices"][0]["text"]
        return text, time.monotonic() - start

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def prompt(seed: int, tokens: int) -> str:
    """Random text: one token a character."""
    letters = random.Random(seed)  # noqa: S311
    return "".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=tokens))


def lmcache(url: str) -> str:
    """An LMCache file: chunks of 64 tokens, a small local tier, Valkey behind it."""
    return json.dumps(
        {
            "chunk_size": 64,
            "local_cpu": True,
            "max_local_cpu_size": 0.25,
            "remote_url": url,
            "remote_serde": "naive",
            "save_unfull_chunk": False,
            "pre_caching_hash_algorithm": "sha256_cbor",
            "extra_config": {"save_chunk_meta": False, "resp_num_threads": 2},
        }
    )


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Container]]:
    """Makes containers, and removes each at the end, whatever becomes of the others."""
    logs, number = tmp_path_factory.mktemp("logs"), itertools.count()
    with contextlib.ExitStack() as stack:

        def container(image: str) -> Container:
            made = Container(image, logs / f"{next(number)}-{image}.log")
            stack.callback(made.remove)
            return made

        yield container


@pytest.fixture(scope="module")
def valkey(make: Callable[[str], Container]) -> int:
    """Valkey with the operator's ACL for engines; returns its port."""
    container, port = make("valkey"), free_port()
    flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"]
    container.start(["valkey-server", *flags, "--aclfile", container.write("users.acl", ACL)])
    wait_for(lambda: "Ready to accept connections" in container.log, "Valkey", 30)
    return port


@pytest.fixture(scope="module")
def engine(make: Callable[[str], Container]) -> Callable[..., Server]:
    """Starts engines the way the operator does; they are not yet healthy."""

    def start(connector: dict[str, Any] | None = None, url: str = "") -> Server:
        container, port = make("engine-cpu"), free_port()
        flags = {
            "--served-model-name": "tiny",
            "--host": "127.0.0.1",
            "--port": str(port),
            "--dtype": "float32",
            "--max-model-len": "2048",
            "--block-size": "32",
            "--kv-cache-memory-bytes": str(128 << 20),
        }
        arguments = [MODEL, "--enforce-eager", *(w for pair in flags.items() for w in pair)]
        if connector is not None:
            arguments += ["--disable-hybrid-kv-cache-manager"]
            arguments += ["--kv-transfer-config", json.dumps(connector)]
        environment = {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        }
        if url:
            environment["LMCACHE_CONFIG_FILE"] = container.write("lmcache.yaml", lmcache(url))
            environment["LMCACHE_RESP_USERNAME"] = "engine"
            environment["LMCACHE_RESP_PASSWORD"] = PASSWORD
        container.start(["sh", "-c", 'exec vllm serve "$@"', "--", *arguments], environment)
        return Server(container, port)

    return start


def until_healthy(*servers: Server) -> None:
    start = time.monotonic()
    for server in servers:
        wait_for(
            lambda server=server: healthy(server.port) or not server.container.running,  # type: ignore[misc]
            "/health",
            START_SECONDS,
        )
        assert server.container.running, server.container.log[-3000:]
    print(f"\n{len(servers)} servers healthy after {time.monotonic() - start:.0f} s")


class Stack(NamedTuple):
    """A plain engine, and a prefill/decode pair behind a router."""

    reference: Server
    prefill: Server
    decode: Server
    router: Server


@pytest.fixture(scope="module")
def stack(make: Callable[[str], Container], engine: Callable[..., Server], valkey: int) -> Stack:
    """Everything of the quickstart, healthy: LMCache over resp:// in the prefill."""
    reference, prefill = engine(), engine(PREFILL, f"resp://127.0.0.1:{valkey}")
    decode = engine(DECODE)
    until_healthy(reference, prefill, decode)
    container, port = make("router"), free_port()
    flags = ["--vllm-pd-disaggregation", "--kv-connector", "nixl", "--policy", "round_robin"]
    flags += ["--prefill", f"http://127.0.0.1:{prefill.port}"]
    flags += ["--decode", f"http://127.0.0.1:{decode.port}"]
    flags += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    container.start(["vllm-router", *flags])
    wait_for(lambda: healthy(port), "the router", 60)
    return Stack(reference, prefill, decode, Server(container, port))


def test_text_through_prefill_and_decode_equals_that_of_one_engine(stack: Stack) -> None:
    for seed in range(3):
        question = prompt(seed, 500)
        got, seconds = stack.router.ask(question)
        assert got == stack.reference.ask(question)[0]
        print(f"through the router: {seconds:.2f} s, text equal")
    # 512 tokens (whole blocks) of 2 layers, K and V, 2 heads of 64 float32 values: 2 KiB each.
    assert stack.decode.metric("vllm:nixl_bytes_transferred_sum") == 3 * 512 * 2048
    assert stack.decode.metric("vllm:external_prefix_cache_hits_total") == 3 * 500


def test_200_requests_over_resp_do_not_hang(stack: Stack) -> None:
    # With the race open the lookup thread hangs after some 50 requests, and every later request
    # takes the lookup's time-out of 3 s. A single slow one is a busy machine.
    seconds = [stack.prefill.ask(prompt(1000 + i, 1000), tokens=1)[1] for i in range(200)]
    print(f"200 requests: median {median(seconds):.2f} s, max {max(seconds):.2f} s")
    assert median(seconds[-50:]) < 2.5
    assert "Timeout occurred" not in stack.prefill.container.log


@pytest.mark.parametrize("scheme", ["resp", "redis"])
def test_a_fresh_engine_is_served_from_valkey(
    stack: Stack, engine: Callable[..., Server], valkey: int, scheme: str
) -> None:
    # redis:// takes its password from the URL only, resp:// from the environment.
    user = f"engine:{PASSWORD}@" if scheme == "redis" else ""
    url = f"{scheme}://{user}127.0.0.1:{valkey}"
    question = prompt(77, 1000)
    want, _ = stack.reference.ask(question)
    writer = stack.prefill if scheme == "resp" else engine(PREFILL, url)
    until_healthy(writer)
    stored = "Stored 960 out of total 960 tokens"
    before = writer.container.log.count(stored)
    assert writer.ask(question)[0] == want
    wait_for(lambda: writer.container.log.count(stored) > before, "the store", 30)
    fresh = engine(PREFILL, url)
    until_healthy(fresh)
    got, seconds = fresh.ask(question)
    hits = fresh.metric("vllm:external_prefix_cache_hits_total")
    print(f"{scheme}: hit {hits:.0f} of 1000 tokens in {seconds:.2f} s")
    assert (got, hits) == (want, 960)
    fresh.container.stop()


def test_the_log_of_a_prefill_says_what_was_rebound(stack: Stack) -> None:
    log = stack.prefill.container.log
    assert "LMCache moves whole KV blocks on CPU, chunk size 64" in log
    assert "NIXL's progress thread pauses 1000 us between polls" in log
