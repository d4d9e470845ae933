"""What the agent costs beside an engine with LMCache: at most 80 MiB, at most 2 % of a core."""

from __future__ import annotations

import gzip
from pathlib import Path

from .processes import Agent, VllmPages, eventually

# The /metrics of a real engine, captured (README.md of that folder says how).
CAPTURED = Path(__file__).with_name("captured") / "vllm-0.32.0-nixl-lmcache.txt.gz"


def test_memory_and_processor_time(pages: VllmPages, agent: Agent) -> None:
    page = gzip.decompress(CAPTURED.read_bytes()).decode()
    # 20 scrapes at five times the pace of a pod, with five times as many probes.
    agent.env |= {
        "KVSERVING_AGENT_SCRAPE_PERIOD": "500ms",
        "KVSERVING_AGENT_PROBE_PERIOD": "100ms",
    }
    pages.start(metrics=page)
    agent.start()
    agent.await_scrape()
    scrapes, cpu = agent.metric("kvserving_agent_scrapes_total"), agent.cpu_seconds()
    assert scrapes is not None
    eventually(
        "20 more scrapes",
        lambda: (agent.metric("kvserving_agent_scrapes_total") or 0) >= scrapes + 20,
        within=60,
    )
    # A scrape and the five probes that come with it, which in a pod happen once in 10 s.
    spent = (agent.cpu_seconds() - cpu) / 20
    memory = agent.resident_mib()
    assert spent < 0.02 * 10
    assert memory < 80
    assert agent.supervisor_kib() < 10 * 1024
