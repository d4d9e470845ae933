"""LMCache's `resp://` client in the built engine-cpu image, against the built valkey image.

Not collected by itself: `make soak` runs it, as root, after `python -m cluster build engine-cpu
valkey`. The operator renders `redis://`, which the end-to-end tests prove; `resp://` is for those
who name it, and stock LMCache loses an answer of it sooner or later. Two engines, no cluster.
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

import pytest
from contained import Container, free_port, healthy, wait_for

MODEL = "/opt/kvserving/models/tiny-gqa"
START_SECONDS = 600.0
REQUESTS = 200
TOKENS, CHUNK = 1000, 64
PASSWORD = "soak-only"
ACL = f"""user default off
user engine on >{PASSWORD} -@all +get +set +exists +del +unlink +ping +hello +auth +select \
+client|setinfo +client|setname +client|id resetchannels ~*
"""
CONNECTOR = {
    "kv_connector": "LMCacheConnectorV1",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}


class Engine:
    """A running vLLM with LMCache over resp://."""

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

    def wait_healthy(self) -> Engine:
        """Wait until it serves; fail with its log when it ends before."""
        wait_for(lambda: healthy(self.port) or not self.container.running, "/health", START_SECONDS)
        assert self.container.running, self.container.log[-3000:]
        return self


def prompt(seed: int) -> str:
    """Random text: one token a character."""
    letters = random.Random(seed)  # noqa: S311
    return "".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=TOKENS))


def lmcache(port: int) -> str:
    """An LMCache file: a small local tier, Valkey behind it."""
    return json.dumps(
        {
            "chunk_size": CHUNK,
            "local_cpu": True,
            "max_local_cpu_size": 0.25,
            "remote_url": f"resp://127.0.0.1:{port}",
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
def start(make: Callable[[str], Container], valkey: int) -> Callable[[], Engine]:
    """Starts an engine and waits until it serves."""

    def engine() -> Engine:
        container, port = make("engine-cpu"), free_port()
        flags = {
            "--served-model-name": "tiny",
            "--host": "127.0.0.1",
            "--port": str(port),
            "--dtype": "float32",
            "--max-model-len": "2048",
            "--block-size": "32",
            "--kv-cache-memory-bytes": str(128 << 20),
            "--kv-transfer-config": json.dumps(CONNECTOR),
        }
        words = [MODEL, "--enforce-eager", "--disable-hybrid-kv-cache-manager"]
        words += [word for pair in flags.items() for word in pair]
        environment = {
            "LMCACHE_CONFIG_FILE": container.write("lmcache.yaml", lmcache(valkey)),
            "LMCACHE_RESP_USERNAME": "engine",
            "LMCACHE_RESP_PASSWORD": PASSWORD,
        }
        container.start(["sh", "-c", 'exec vllm serve "$@"', "--", *words], environment)
        return Engine(container, port).wait_healthy()

    return engine


@pytest.fixture(scope="module")
def writer(start: Callable[[], Engine]) -> Engine:
    return start()


def test_many_requests_over_resp_do_not_hang(writer: Engine) -> None:
    # With the race open the lookup thread hangs after some 50 requests, and every later request
    # takes the lookup's time-out of 3 s. A single slow one is a busy machine.
    seconds = [writer.ask(prompt(1000 + number), tokens=1)[1] for number in range(REQUESTS)]
    print(f"{REQUESTS} requests: median {median(seconds):.2f} s, max {max(seconds):.2f} s")
    assert median(seconds[-50:]) < 2.5
    assert "Timeout occurred" not in writer.container.log
    assert "LMCache moves whole KV blocks on CPU, chunk size 64" in writer.container.log


def test_a_fresh_engine_is_served_over_resp(writer: Engine, start: Callable[[], Engine]) -> None:
    whole = TOKENS // CHUNK * CHUNK
    stored = f"Stored {whole} out of total {whole} tokens"
    before = writer.container.log.count(stored)
    want, _ = writer.ask(prompt(77))
    wait_for(lambda: writer.container.log.count(stored) > before, "the store", 30)
    fresh = start()
    got, seconds = fresh.ask(prompt(77))
    hits = fresh.metric("vllm:external_prefix_cache_hits_total")
    print(f"hit {hits:.0f} of {TOKENS} tokens in {seconds:.2f} s")
    assert (got, hits) == (want, whole)
