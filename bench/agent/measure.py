"""What the agent costs beside an engine, asked as in a pod: `measure.py [--json FILE]`.

README.md says what is asked by whom. Nothing is quicker than in a pod but the clock's windows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import mean
from typing import Any

from tests.agent.ports import PATCHES, ControlPort
from tests.agent.processes import Agent, VllmPages, eventually

PAGE = Path(__file__).parents[2] / "operator/tests/agent/captured/vllm-0.32.0-nixl-lmcache.txt.gz"
TARGETS = {"rss_mib": 80.0, "cpu_percent": 2.0}
# (path, seconds between two): the kubelet's readiness and liveness, Prometheus, the operator.
ASKED = (("/readyz", 2.0), ("/metrics", 10.0), ("/metrics", 15.0), ("/v1/facts", 10.0))


class Store(ControlPort):
    """engine_store.py beside this file."""

    package = "sharded-store"

    def start(self) -> None:
        """Serve until it is ended."""
        script = Path(__file__).with_name("engine_store.py")
        env = {**os.environ, "PYTHONPATH": str(PATCHES / self.package)}
        self.spawn(sys.executable, str(script), str(self.port), env=env)
        self.says("listening")


class Asking:
    """All that is asked of an agent in a pod, for as long as the `with` lasts."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=each) for each in ASKED]
        self.sizes: list[int] = []

    def _ask(self, path: str, period: float) -> None:
        while not self._over.wait(period):
            if path == "/v1/facts":
                facts = self._agent.facts()
                self.sizes.append(len(json.dumps(facts, separators=(",", ":"))))
            else:
                self._agent.status(path)

    def __enter__(self) -> Asking:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def spin() -> float:
    """Seconds for a fixed piece of Python: how fast the machine is just now."""
    began = time.process_time()
    sum(i * i for i in range(3_000_000))
    return round(time.process_time() - began, 3)


def measure(folder: Path, windows: int, seconds: float) -> dict[str, Any]:
    """Figures of so many windows of one agent."""
    pages, store = VllmPages(folder), Store(folder)
    pages.start(metrics=gzip.decompress(PAGE.read_bytes()).decode())
    store.start()
    agent = Agent(folder, pages.port, KVSERVING_AGENT_STORE_URL=store.url)
    try:
        agent.start()
        eventually("a whole answer", lambda: agent.facts()["store"]["recent"], within=40)
        shares = []
        with Asking(agent) as asking:
            for _ in range(windows):
                cpu, began = agent.cpu_seconds(), time.monotonic()
                time.sleep(seconds)
                spent = agent.cpu_seconds() - cpu
                shares.append(round(100 * spent / (time.monotonic() - began), 2))
        return {
            "window_s": seconds,
            "cpu_percent": shares,
            "rss_mib": round(agent.resident_mib(), 1),
            "peak_rss_mib": round(agent.resident_mib("VmHWM"), 1),
            "supervisor_mib": round(agent.supervisor_kib() / 1024, 1),
            "facts_bytes": max(asking.sizes),
            "page_bytes": int(agent.metric("kvserving_agent_scrape_page_bytes") or 0),
        }
    finally:
        for process in (agent, store, pages):
            process.end()


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = spin()
        found = measure(Path(folder), options.windows, options.seconds)
    reached = {
        "rss_mib": found["peak_rss_mib"] <= TARGETS["rss_mib"],
        "cpu_percent": max(found["cpu_percent"]) <= TARGETS["cpu_percent"],
    }
    result = {
        "machine": {"cores": os.cpu_count(), "spin_s": [before, spin()]},
        "python": platform.python_version(),
        **found,
        "cpu_percent_mean": round(mean(found["cpu_percent"]), 2),
        "targets": TARGETS,
        "reached": reached,
    }
    text = json.dumps(result, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
