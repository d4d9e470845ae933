"""Lets several CPU engines with NIXL share a machine.

Two stock habits starve it. NIXL's Python API starts its progress thread with no pause between
polls, one core per engine for good; on two cores a handshake then times out and a transfer takes
up to 21 s. And vLLM's NIXL worker pins itself to the last core of each NUMA node, in pods the same
core for every engine: transfers stalled 4 to 30 s.
"""

from __future__ import annotations

import logging
from typing import Any

from kvserving_engine_cpu.versions import made_for

logger = logging.getLogger("vllm.kvserving_engine_cpu")

# Microseconds between two polls of NIXL's progress thread: idle 2.7 % of a core instead of 100 %,
# a transfer of 1 MiB takes 2-20 ms.
PROGRESS_DELAY = 1000


def rebind() -> None:
    """Rebinds NIXL's native agent class and vLLM's choice of cores, once, for known versions."""
    if made_for("nixl", "1.5.1", "the progress delay"):
        from nixl import _bindings  # noqa: PLC0415

        slow_progress(_bindings)
    if made_for("vllm", "0.32.0", "the removal of core pinning"):
        from vllm.platforms.cpu import CpuPlatform  # noqa: PLC0415

        # Its only caller is the NIXL worker, which pins nothing when the list is empty.
        CpuPlatform.discover_numa_topology = classmethod(lambda _: [])


def slow_progress(bindings: Any) -> None:
    """Makes agents created through these bindings pause between polls, unless they already do."""
    stock = bindings.nixlAgent
    if getattr(stock, "kvserving", False):
        return

    def agent(name: str, config: Any) -> Any:
        if config.pthrDelay == 0:
            config.pthrDelay = PROGRESS_DELAY
        return stock(name, config)

    agent.kvserving = True  # type: ignore[attr-defined]
    bindings.nixlAgent = agent
    logger.info("NIXL's progress thread pauses %d us between polls", PROGRESS_DELAY)
