"""Figures of long runs, kept where KVSERVING_TEST_RESULTS names a folder (`make soak`)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .servers import VALKEY


def versions() -> dict[str, str]:
    """What a run was had with."""
    found = {"python": platform.python_version()}
    for name in ("lmcache", "torch", "vllm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    told = subprocess.run([VALKEY, "--version"], capture_output=True, text=True, check=True).stdout
    found["valkey"] = next(part[2:] for part in told.split() if part.startswith("v="))
    return found


def record(name: str, part: str, figures: dict[str, Any]) -> None:
    """Put the figures of one part into `NAME.json`, with the machine and the versions."""
    folder = os.environ.get("KVSERVING_TEST_RESULTS")
    if not folder:
        return
    path = Path(folder) / f"{name}.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else {}
    parts[part] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), **figures}
    found = {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, shared with other work",
        "versions": versions(),
        "parts": dict(sorted(parts.items())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
