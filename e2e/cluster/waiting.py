"""Waiting for a condition with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.errors import ClusterError


def wait_until(
    condition: Callable[[], bool], *, timeout: float, what: str, interval: float = 0.05
) -> None:
    """Return once `condition` is true; raise ClusterError after `timeout` seconds.

    The condition may itself raise ClusterError to give up early (a process that died).
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise ClusterError(f"{what}: not within {timeout:.0f} s")
        time.sleep(interval)
