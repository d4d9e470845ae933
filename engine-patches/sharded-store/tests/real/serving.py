"""Real vLLM servers with the package installed, on CPU or on GPUs: started, asked, stopped.

Stands apart from pytest, so that it also runs where there is none. A server's log is its evidence.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONNECTOR = "ShardedStoreConnector"
NIXL = {"kv_connector": "NixlConnector"}
FINISHED = "vllm:request_success_total"
LETTERS = "abcdefghijklmnopqrstuvwxyz "
PACKAGE = Path(__file__).parents[2]
"""Where the distribution is: the folder that holds the package."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lasting_port(count: int = 1) -> int:
    """A port that is free with the ones after it, and that no connection is given meanwhile.

    The first ends in 0. A server that is killed and started again finds it as it was.
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        base = random.randrange(max(1024, ephemeral - 20_000), ephemeral - 10) // 10 * 10
        try:
            for number in range(count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + number))
        except OSError:
            continue
        return base


def prompt(seed: int, tokens: int) -> str:
    """Random text, one token a character."""
    return "".join(random.Random(seed).choices(LETTERS, k=tokens))


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


def store_transfer(**more: Any) -> dict[str, Any]:
    """A kv-transfer-config of our connector alone."""
    return {"kv_connector": CONNECTOR, "kv_role": "kv_both", **more}


def with_nixl(buffer: str, child: dict[str, Any], policy: str = "recompute") -> dict[str, Any]:
    """MultiConnector of NIXL as producer and another one."""
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {
            "connectors": [
                {**NIXL, "kv_role": "kv_producer", "kv_buffer_device": buffer},
                child,
            ]
        },
    }


def lmcache_file(
    path: Path, url: str | None, chunk: int = 64, *, patience: int = 5, **extra: Any
) -> Path:
    """LMCache's configuration, as the operator renders it; ``extra`` with ``kvserving.`` before.

    With more ``patience`` no lookup and no load is given up because the machine is busy.
    """
    text = {
        "chunk_size": chunk,
        "local_cpu": True,
        "max_local_cpu_size": 0.25,
        "remote_url": url,
        "remote_serde": "naive",
        "save_unfull_chunk": False,
        "blocking_timeout_secs": patience,
        "lookup_timeout_ms": 600 * patience,
        "extra_config": {
            "save_chunk_meta": False,
            **{f"kvserving.{name}": value for name, value in extra.items()},
        },
    }
    path.write_text(json.dumps(text))
    return path


def installed(folder: Path, package: Path = PACKAGE) -> dict[str, str]:
    """An environment in which vLLM finds this package's plugin, whether it is installed or not.

    With that of engine-cpu, as in the image: it forks the engine's processes, which saves most of
    the time that a start takes.
    """
    beside = PACKAGE.parents[1] / "images" / "engine-cpu" / "plugin"
    paths = [str(folder), str(package)]
    plugins = {"kvserving_sharded_store": "kvserving_sharded_store.plugin:activate"}
    if beside.exists():
        paths.append(str(beside))
        plugins["kvserving_engine_cpu"] = "kvserving_engine_cpu:activate"
    for name, entry in plugins.items():
        info = folder / f"{name}-0.1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {entry}\n")
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": ":".join(paths)}


@dataclass
class Answer:
    """What a server said.

    Attributes:
        tokens: The tokens, as text.
        logprobs: Of each.
        gaps: Between the best and the second.
        usage: As it came.
        seconds: Until it was here.
        error: Status and text, none when it answered.
    """

    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None
    transfer: dict[str, Any] | None = None

    def equals(self, other: Answer, tie: float = 0.0) -> bool:
        """The same tokens, or the first difference where this one was nearly tied itself."""
        if self.error or other.error or not self.tokens:
            return False
        for index, (mine, theirs) in enumerate(zip(self.tokens, other.tokens, strict=True)):
            if mine != theirs:
                return self.gaps[index] < tie
        return True


class Vllm:
    """One server in a process group of its own."""

    def __init__(
        self,
        name: str,
        model: Path,
        work: Path,
        *flags: str,
        transfer: dict[str, Any] | None = None,
        lmcache: Path | None = None,
        env: dict[str, str] | None = None,
        gpus: str | None = None,
    ) -> None:
        self.name, self.port = name, lasting_port()
        self.log_path = work / f"{name}.log"
        prometheus = work / f"{name}.prom"
        shutil.rmtree(prometheus, ignore_errors=True)
        prometheus.mkdir(parents=True)
        full = {
            **os.environ,
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "LMCACHE_TRACK_USAGE": "false",
            "LMCACHE_DISABLE_BANNER": "1",
            "PYTHONHASHSEED": "0",
            "PROMETHEUS_MULTIPROC_DIR": str(prometheus),
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(lasting_port()),
            "VLLM_SERVER_DEV_MODE": "1",
        }
        arguments = ["--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager"]
        if gpus is None:
            full |= {
                "VLLM_TARGET_DEVICE": "cpu",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": "1",
                "TORCHDYNAMO_DISABLE": "1",
                "UCX_TLS": "tcp",
                # Of the others one may go while UCX looks at it.
                "UCX_NET_DEVICES": "lo",
            }
            arguments += ["--dtype", "float32", "--kv-cache-memory-bytes", str(128 << 20)]
        else:
            full |= {
                "CUDA_VISIBLE_DEVICES": gpus,
                "NCCL_NVLS_ENABLE": "0",
                "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
                "VLLM_USE_FLASHINFER_SAMPLER": "0",
                "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
            }
            arguments += ["--kv-cache-memory-bytes", str(2 << 30), "--disable-custom-all-reduce"]
            arguments += ["--gpu-memory-utilization", "0.03"]
        if lmcache is not None:
            full["LMCACHE_CONFIG_FILE"] = str(lmcache)
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
        command += ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port)]
        command += [*arguments, *flags]
        if transfer is not None:
            command += ["--disable-hybrid-kv-cache-manager"]
            command += ["--kv-transfer-config", json.dumps(transfer)]
        self.started = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**full, **(env or {})},
                cwd=work,  # python -m finds first what lies there
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(line[:300] for line in self.log.splitlines()[-lines:])

    def get(self, path: str, seconds: float = 10.0) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=seconds) as page:
            return str(page.read().decode())

    def healthy(self) -> bool:
        with contextlib.suppress(OSError):
            self.get("/health", 2.0)
            return True
        return False

    def wait(self, seconds: float = 240.0) -> float:
        until(lambda: self.healthy() or not self.alive, seconds, f"{self.name} healthy")
        assert self.alive, f"{self.name} ended:\n{self.tail()}"
        return time.monotonic() - self.started

    def ask(self, text: str, tokens: int = 24, seconds: float = 120.0, **more: Any) -> Answer:
        body = {
            "model": "tiny",
            "prompt": text,
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": 2,
            "ignore_eos": True,
            "return_tokens_as_token_ids": True,
            **more,
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=seconds) as page:
                answer = json.load(page)
        except urllib.error.HTTPError as error:
            text = error.read().decode()[:300]
            return Answer(seconds=time.monotonic() - began, error=f"{error.code} {text}")
        except OSError as error:
            return Answer(seconds=time.monotonic() - began, error=f"{error}")
        logprobs = answer["choices"][0].get("logprobs") or {}
        gaps = []
        for top in logprobs.get("top_logprobs") or []:
            best = sorted((top or {}).values(), reverse=True)
            gaps.append(best[0] - best[1] if len(best) > 1 else 0.0)
        return Answer(
            logprobs.get("tokens") or [],
            logprobs.get("token_logprobs") or [],
            gaps,
            answer.get("usage") or {},
            time.monotonic() - began,
            None,
            answer.get("kv_transfer_params"),
        )

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all labels but these."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            if line.startswith((name + "{", name + " ")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def hits(self) -> int:
        return int(self.metric("vllm:external_prefix_cache_hits_total"))

    def asked(self, text: str, tokens: int = 24) -> tuple[Answer, int]:
        """An answer, and the tokens hit for it: the counters follow a little after the answer."""
        finished, hits = self.metric(FINISHED), self.hits()
        answer = self.ask(text, tokens)
        if answer.error is None:
            # Counted after everything else of the request.
            until(lambda: self.metric(FINISHED) > finished, 30, "the request is counted")
        return answer, self.hits() - hits

    def forget(self) -> None:
        """Empty the engine's own prefix cache."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/reset_prefix_cache", b"", method="POST"
        )
        urllib.request.urlopen(request, timeout=30).read()

    def pids(self) -> set[int]:
        """The processes of the group."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ProcessLookupError):
                    state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                    if os.getsid(int(entry.name)) == self._process.pid and state != "Z":
                        found.add(int(entry.name))
        return found

    def worker(self, rank: int) -> int:
        """The process of a tensor-parallel rank, by the name that vLLM gives it."""
        name = f"VLLM::Worker_TP{rank}"
        titles = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in self.pids()}
        [found] = [pid for pid, title in titles.items() if title.startswith(name)]
        return found

    def terminate(self, seconds: float = 30.0) -> float:
        """SIGTERM to the server; seconds until every process of it is gone."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
            until(lambda: not self.pids(), seconds, f"{self.name} gone")
        finally:
            self.kill()
        return time.monotonic() - began

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def transfer(prefill: Vllm, decode: Vllm, text: str, tokens: int = 24) -> Answer:
    """One request through prefill and decode, by hand."""
    wanted = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    first = prefill.ask(text, 1, min_tokens=1, kv_transfer_params=wanted)
    if first.error or not first.transfer:
        return Answer(error=first.error or "no transfer parameters")
    answer = decode.ask(text, tokens, kv_transfer_params=first.transfer)
    answer.seconds += first.seconds
    return answer


@contextlib.contextmanager
def scraped(server: Vllm, scrapers: int = 4) -> Iterator[None]:
    """A server whose metrics are read all the time: its event loop has something else to do."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.is_set() and server.alive:
            with contextlib.suppress(OSError, http.client.HTTPException):
                server.get("/metrics")

    threads = [threading.Thread(target=scrape) for _ in range(scrapers)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ended.set()
        for each in threads:
            each.join()


@contextlib.contextmanager
def serving(*servers: Vllm) -> Iterator[Sequence[Vllm]]:
    """Servers that are killed at the end, whatever becomes of the test."""
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


def control(port: int, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """The control contract's state, after putting settings if there are some."""
    base = f"http://127.0.0.1:{port}/v1"
    with urllib.request.urlopen(f"{base}/state", timeout=5) as page:
        state: dict[str, Any] = json.load(page)
    if settings is None:
        return state
    request = urllib.request.Request(
        f"{base}/settings",
        json.dumps(settings).encode(),
        {"content-type": "application/json", "If-Match": state["startId"]},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=5) as page:
        after: dict[str, Any] = json.load(page)
    return after
