"""Records the pages of a real stock engine: vLLM on CPU, LMCache 0.5.6 and one Valkey.

Not collected. ENV is what engine-patches/sharded-store/tests/environment.sh makes, and tests/real
beside it has to be in PYTHONPATH. Answers of Valkey come DELAY milliseconds late:

    ENV/venv/bin/python record_stock.py ENV OUT DELAY

Writes one line a look, `{"at": second, "did": what since the last look, "page": text}`, with the
families that facts are made from. The engine's counters are of the look, those of LMCache up to
10 s older: it publishes them that seldom.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from serving import Vllm, free_port, prompt

LOOKS, SECONDS = 16, 10.0
CHUNK, SHORT, LONG = 256, 530, 6000
"""Tokens: of a chunk; of prompts of which two chunks are hit; of prompts that are computed."""
PREFIXES = 80
"""More than the engine's own memory holds (.05 GB, 40 of them), so that hits come from the tier."""
KEPT = (
    "vllm:request_prefill", "vllm:request_queue", "vllm:prompt_tokens_total", "vllm:num_requests_",
    "vllm:external_prefix_cache", "vllm:prefix_cache", "vllm:request_success_total",
    "vllm:prompt_tokens_cached_total", "vllm:e2e_request_latency_seconds", "lmcache:num_",
    "lmcache:time_to_", "lmcache:remote_time_to_", "lmcache:lookup_0_hit", "lmcache:retrieve_",
)  # fmt: skip


def kept(page: str) -> str:
    """What facts need: of histograms other than the latency's the sums alone."""
    lines = (line for line in page.splitlines() if line.startswith(KEPT))
    return "\n".join(
        line for line in lines if "_bucket{" not in line or line.startswith("vllm:e2e")
    )


class Far:
    """What is before a Valkey that is some way off: answers come late, but no slower."""

    def __init__(self, target: int, delay: float) -> None:
        self.port, self._target, self._delay = free_port(), target, delay
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port)
        await server.serve_forever()

    async def _client(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection("127.0.0.1", self._target)
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        await asyncio.gather(self._ask(near, there), self._hear(far, late), self._tell(late, back))

    async def _ask(self, near: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while data := await near.read(1 << 20):
            there.write(data)
            await there.drain()

    async def _hear(self, far: asyncio.StreamReader, late: asyncio.Queue) -> None:
        while data := await far.read(1 << 20):
            late.put_nowait((time.monotonic() + self._delay, data))

    async def _tell(self, late: asyncio.Queue, back: asyncio.StreamWriter) -> None:
        while True:
            due, data = await late.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            back.write(data)
            await back.drain()


def traffic(engine: Vllm) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is asked, look by look; one request after the other, so that none waits."""
    texts = [prompt(seed, SHORT) for seed in range(PREFIXES)]

    def every(chosen: list[str]) -> Callable[[], object]:
        return lambda: [engine.ask(text, 1) for text in chosen]

    yield "store", every(texts)
    for look in range(LOOKS):
        yield "compute", every([prompt(1000 + 10 * look + n, LONG) for n in range(3)])
    for look in range(LOOKS):
        yield "load", every([texts[(20 * look + n) % PREFIXES] for n in range(20)])
    for look in range(4):
        fresh = [prompt(5000 + look, LONG)]
        yield "both", every([*texts[20 * look : 20 * look + 5], *fresh])
    yield "nothing", lambda: None


def main(environment: Path, out: Path, delay: float) -> None:
    plugin = Path(__file__).parents[4] / "images" / "engine-cpu" / "plugin"
    with tempfile.TemporaryDirectory() as folder:
        work, port = Path(folder), free_port()
        info = work / "engine_cpu-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: engine-cpu\nVersion: 0.1.0\n")
        entry = "[vllm.general_plugins]\nkvserving_engine_cpu = kvserving_engine_cpu:activate\n"
        (info / "entry_points.txt").write_text(entry)
        lmcache = work / "lmcache.yaml"
        lmcache.write_text(
            json.dumps(
                {
                    "chunk_size": CHUNK,
                    "local_cpu": True,
                    "max_local_cpu_size": 0.05,
                    "remote_serde": "naive",
                    "save_unfull_chunk": False,
                    "pre_caching_hash_algorithm": "sha256_cbor",
                    "extra_config": {"save_chunk_meta": False},
                }
            )
        )
        server = [str(environment / "valkey-server"), "--port", str(port), "--bind", "127.0.0.1"]
        with subprocess.Popen([*server, "--save", "", "--dir", folder]) as valkey:
            flags = ["--no-enable-prefix-caching", "--max-num-batched-tokens", "8192"]
            flags += ["--hf-overrides", '{"max_position_embeddings": 8192}']
            tier = Far(port, delay).port if delay else port
            engine = Vllm(
                "stock",
                environment / "models" / "tiny-gqa",
                work,
                *flags,
                "--max-model-len",
                "8192",
                transfer={"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
                lmcache=lmcache,
                env={
                    "LMCACHE_REMOTE_URL": f"redis://127.0.0.1:{tier}",
                    "VLLM_PLUGINS": "kvserving_engine_cpu",
                    "PYTHONPATH": os.pathsep.join([str(work), str(plugin)]),
                },
            )
            try:
                engine.wait()
                with gzip.open(out, "wt", compresslevel=9) as file:
                    for did, ask in traffic(engine):
                        due = time.monotonic() + SECONDS
                        ask()
                        time.sleep(max(0.0, due - time.monotonic()))
                        at = time.monotonic()
                        page = kept(engine.get("/metrics"))
                        json.dump({"at": round(at, 3), "did": did, "page": page}, file)
                        file.write("\n")
                        file.flush()
            finally:
                sys.stderr.write(engine.tail(8) + "\n")
                engine._process.kill()
                valkey.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) / 1000)
