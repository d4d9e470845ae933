"""Real engine processes for the tests, and how to ask them."""

# ruff: noqa: S310, S311  the URLs are the tests' own, and prompts are no secrets

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from servers import PASSWORD, eventually, free_port

HERE = Path(__file__).parent
EXECUTABLE = HERE.parent / "bin" / "vllm"
MODEL = "simulated/model"
CHUNK = 64
# Two busy cores: an engine with four ranks has been seen to take 45 s beside nine other jobs.
START_SECONDS = 180
PREFILL_LEG = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
NIXL_PRODUCER = {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}


def prompt(seed: int, tokens: int = 1000) -> str:
    """As many tokens as characters."""
    chosen = random.Random(seed)
    return "".join(chosen.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(tokens))


def multi(policy: str, *connectors: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"connectors": list(connectors), **extra},
    }


class Engine:
    """One engine, started in the background by `vllm serve`."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        transfer: dict[str, Any] | None = None,
        tier: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True)
        self.port, self.side_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / "log"
        command = [str(EXECUTABLE), "serve", MODEL, "--served-model-name", "sim"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *flags]
        if transfer:
            command += ["--kv-transfer-config", json.dumps(transfer)]
        full = {**os.environ, **_BASE_ENVIRONMENT, "TMPDIR": str(directory)}
        full["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(self.side_port)
        full["PROMETHEUS_MULTIPROC_DIR"] = str(directory / "metrics")
        if tier:
            full["LMCACHE_REMOTE_URL"] = tier
        full |= environment or {}
        self.started = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=full, stdout=log, stderr=log)

    def ready(self) -> Engine:
        def healthy() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return self.status("/health") == 200

        eventually(f"{self.url} is up", healthy, START_SECONDS)
        self.start_seconds = time.monotonic() - self.started
        return self

    def stop(self) -> None:
        if self.process.poll() is None:
            self.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def status(self, path: str) -> int:
        """The HTTP status of a GET; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return json.load(response)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, content, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def complete(self, text: str, tokens: int = 24, **options: Any) -> Any:
        """A greedy completion that must succeed."""
        status, answer = self.post("/v1/completions", greedy(text, tokens, **options))
        assert status == 200, answer
        return answer

    def text(self, text: str, tokens: int = 24, **options: Any) -> str:
        return str(self.complete(text, tokens, **options)["choices"][0]["text"])

    def stream(self, text: str, tokens: int, **options: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed completion; ends without [DONE] if the connection does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps(greedy(text, tokens, stream=True, **options))
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", body)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
                elif line.startswith(b"data: [DONE]"):
                    yield {"done": True}

    def metrics(self) -> dict[str, float]:
        """Samples by name, with the value of the label that tells those of one name apart."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as response:
            page = response.read().decode()
        found: dict[str, float] = {}
        for line in page.splitlines():
            if line.startswith("#"):
                continue
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            if kind := _KIND.search(labels):
                name += "{" + kind[1] + "}"
            found[name] = found.get(name, 0.0) + float(value)
        return found

    def counted(self, action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
        """What `action` returns, and by how much every metric has grown."""
        before = self.metrics()
        result = action()
        after = self.metrics()
        return result, {name: value - before.get(name, 0) for name, value in after.items()}

    def forget(self) -> None:
        """Empty the local prefix cache."""
        eventually("no block is held", lambda: self._reset() == 200)

    def _reset(self) -> int:
        request = urllib.request.Request(f"{self.url}/reset_prefix_cache", b"", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code


_KIND = re.compile(r'(?:source|reason|stage)="([^"]*)"')
_BASE_ENVIRONMENT = {
    "HOME": "/tmp",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "LMCACHE_CHUNK_SIZE": str(CHUNK),
    "LMCACHE_MAX_LOCAL_CPU_SIZE": "0.1",
    "LMCACHE_PRE_CACHING_HASH_ALGORITHM": "sha256_cbor",
    "LMCACHE_REMOTE_SERDE": "naive",
    "LMCACHE_SAVE_UNFULL_CHUNK": "false",
    "LMCACHE_EXTRA_CONFIG": '{"save_chunk_meta": false, "resp_num_threads": 2}',
    "LMCACHE_RESP_USERNAME": "engine",
    "LMCACHE_RESP_PASSWORD": PASSWORD,
    "KVSERVING_SIM_TOKENS_PER_SECOND": "50000",
    "KVSERVING_SIM_INTER_TOKEN_SECONDS": "0.002",
}


def greedy(text: str, tokens: int, **options: Any) -> dict[str, Any]:
    body = {"model": "sim", "prompt": text, "max_tokens": tokens, "temperature": 0}
    return {**body, "ignore_eos": True, **options}


def prefill(engine: Engine, text: str) -> dict[str, Any]:
    """The prefill leg as the router sends it; the parameters for the decode leg."""
    answer = engine.complete(text, 1, kv_transfer_params=PREFILL_LEG)
    params: dict[str, Any] = answer["kv_transfer_params"]
    assert params["do_remote_prefill"] is True
    return params
