"""The agent beside a real vLLM on CPU: start, serve, freeze, restart in place, stop.

Not collected by itself, since it needs an engine: the end-to-end stage runs it by name,
`pytest operator/tests/agent/real_vllm.py`, with KVSERVING_TEST_VLLM naming the `vllm` executable of
a CPU engine and KVSERVING_TEST_MODEL a model folder that it can serve.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Agent, Process, eventually, free_port

# 20 s on a quiet machine; other work beside it makes it ten times that.
START_SECONDS = 400.0


class Vllm(Process):
    """`vllm serve` as the only thing on its port, in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "vllm.log")
        self.port = free_port()
        self.folder = folder

    def start(self) -> None:
        multiproc = self.folder / "prometheus"
        multiproc.mkdir(exist_ok=True)
        for left in multiproc.iterdir():
            left.unlink()
        env = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "PROMETHEUS_MULTIPROC_DIR": str(multiproc),
        }
        flags = "--served-model-name tiny --host 127.0.0.1 --dtype float32 --enforce-eager"
        sizes = "--max-model-len 1024 --max-num-seqs 4 --kv-cache-memory-bytes 134217728"
        self.spawn(
            needed("KVSERVING_TEST_VLLM"),
            "serve",
            needed("KVSERVING_TEST_MODEL"),
            *flags.split(),
            *sizes.split(),
            "--port",
            str(self.port),
            env=env,
        )

    @property
    def alive(self) -> bool:
        """True; an engine that ended by itself fails the test with its log."""
        if self.running.poll() is not None:
            pytest.fail(self.log.read_text()[-4000:])
        return True

    def complete(self, prompt: str) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 4}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            assert response.status == 200

    def signal_all(self, number: signal.Signals) -> None:
        """Signal vLLM and its children (engine core, workers)."""
        for pid in descendants(self.running.pid):
            os.kill(pid, number)


def needed(variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        pytest.fail(f"{variable} must be set: this test needs a real vLLM for CPU")
    return value


def descendants(pid: int) -> list[int]:
    """The process and all below it, parents first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(below for child in children for below in descendants(int(child)))]


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[Vllm]:
    engine = Vllm(tmp_path)
    yield engine
    if engine.child is not None and engine.child.poll() is None:
        engine.signal_all(signal.SIGCONT)
        engine.running.terminate()
        engine.running.wait(timeout=60)
    engine.end()


@pytest.fixture
def beside(tmp_path: Path, vllm: Vllm) -> Iterator[Agent]:
    agent = Agent(tmp_path, vllm.port, KVSERVING_AGENT_STALE_AFTER="10s")
    yield agent
    agent.end()


def test_the_life_of_a_real_engine(vllm: Vllm, beside: Agent) -> None:
    beside.start()
    assert not beside.ready
    vllm.start()
    eventually("ready", lambda: vllm.alive and beside.ready, START_SECONDS)
    vllm.complete("the engine really serves when the agent says so")
    beside.await_scrape()
    facts = beside.facts()
    first = facts["engine"]
    assert (first["up"], first["model"], first["startIdSource"]) == (True, "tiny", "Socket")
    assert first["version"].split(".")[0].isdigit()
    assert facts["numbers"]["requestsFinished"]["value"] == 1
    assert facts["numbers"]["promptTokens"]["value"] > 10
    assert facts["numbers"]["running"]["value"] == 0
    assert facts["numbers"]["nixlBytes"]["value"] is None, "no NIXL here: missing, not zero"

    vllm.signal_all(signal.SIGSTOP)
    eventually("stale", lambda: not beside.ready, 30)
    assert beside.facts()["engine"]["startId"] == first["startId"]
    vllm.signal_all(signal.SIGCONT)
    eventually("ready again", lambda: beside.ready, 30)
    assert beside.facts()["engine"]["startId"] == first["startId"]

    vllm.running.terminate()
    vllm.running.wait(timeout=60)
    eventually("down", lambda: beside.facts()["engine"]["up"] is False)
    assert beside.facts()["engine"]["startId"] is None
    vllm.start()
    eventually("ready in its second life", lambda: vllm.alive and beside.ready, START_SECONDS)
    second = beside.facts()["engine"]["startId"]
    assert second not in (None, first["startId"])
    assert beside.metric("kvserving_agent_engine_starts_total") == 1

    assert beside.resident_mib("VmHWM") < 80
