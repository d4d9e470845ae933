"""The metrics page: front and workers write files, a scrape adds them up.

LMCache's metrics come from the worker processes, so prometheus_client's multi-process mode is used
always; vLLM uses it when PROMETHEUS_MULTIPROC_DIR is set, as the operator does.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def prepare_directory() -> Path | None:
    """Choose the directory; one that was made for this process, for its owner to remove.

    Before the first import of prometheus_client and before any fork.
    """
    directory = os.environ.get(_VARIABLE)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        return None
    made = tempfile.mkdtemp(prefix="kvserving-engine-sim-metrics-")
    os.environ[_VARIABLE] = made
    return Path(made)


def render() -> tuple[bytes, str]:
    """The page and its content type."""
    from prometheus_client import (  # noqa: PLC0415  reads the environment when imported
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        generate_latest,
        multiprocess,
    )

    registry: Any = CollectorRegistry()
    collect: Any = multiprocess.MultiProcessCollector
    collect(registry)
    return generate_latest(registry), CONTENT_TYPE_LATEST
