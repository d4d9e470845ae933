"""Gives vLLM what it would find out about the built-in models by starting one more Python.

vLLM inspects a model's class in a process of its own, which imports all of vLLM: a quarter of an
engine's start on CPU. The result depends on vLLM's sources alone and is cached in VLLM_CACHE_ROOT,
which in a pod is a fresh volume. So it is found out once while the image is built, and copied.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger("vllm.kvserving_engine_cpu")

# Where the Dockerfile leaves the cache; vLLM checks each entry against a hash of its own sources.
SEED = Path("/opt/kvserving/vllm-cache/modelinfos")


def seed(cache_root: str, source: Path = SEED) -> int:
    """Copies entries that vLLM's cache does not have yet; returns how many. Never fails a start."""
    copied = 0
    target = Path(cache_root) / "modelinfos"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for entry in sorted(source.glob("*.json")):
            if not (target / entry.name).exists():
                # Several processes of one engine may do this at once.
                temporary = target / f".{entry.name}.{os.getpid()}"
                shutil.copyfile(entry, temporary)
                temporary.replace(target / entry.name)
                copied += 1
    except OSError as error:
        logger.warning("vLLM's model cache is not seeded, the start takes longer: %s", error)
    return copied
