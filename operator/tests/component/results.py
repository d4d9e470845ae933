"""Figures of a long run, kept where KVSERVING_TEST_RESULTS names a folder (`make soak`)."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import kvserving_operator
from cluster import settings


def record(name: str, figures: dict[str, Any]) -> None:
    """Write `NAME.json` with the machine and the versions that the figures were had with."""
    folder = os.environ.get("KVSERVING_TEST_RESULTS")
    if not folder:
        return
    found = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, shared with other work",
        "versions": {
            "kvserving-operator": kvserving_operator.__version__,
            "kubernetes": settings.KUBERNETES_VERSION,
            "kwok": settings.KWOK_VERSION,
            "python": platform.python_version(),
        },
        **figures,
    }
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
