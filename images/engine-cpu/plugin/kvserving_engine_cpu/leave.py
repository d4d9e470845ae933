"""Lets an engine with LMCache 0.5.6 leave when it is told to.

vLLM 0.32 asks its connectors to shut down, but its LMCache connector does not pass that on, so
LMCache's event loop, a thread that is no daemon, keeps the process: vLLM waits 5 s, then 4 s more,
then kills it, and a pod takes 15 s to go. Here the connector gets a shutdown that waits, bounded,
for what is still on its way to the remote tier, and stops the loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from kvserving_engine_cpu.versions import made_for

logger = logging.getLogger("vllm.kvserving_engine_cpu")

BOUND = 3.0
"""Seconds for writes that are under way; what is not stored by then is recomputed some day."""
STEP = 0.02


def rebind() -> None:
    """Gives vLLM's LMCache connector a shutdown, for the versions that lack one."""
    if not made_for("lmcache", "0.5.6", "the bounded shutdown"):
        return
    if not made_for("vllm", "0.32.0", "the bounded shutdown"):
        return
    from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import (  # noqa: PLC0415
        LMCacheConnectorV1,
    )

    LMCacheConnectorV1.shutdown = shutdown


def shutdown(connector: Any) -> None:
    """Ends the storage manager of a connector's engine, if this process has one."""
    engine = getattr(connector._lmcache_engine, "lmcache_engine", None)
    storage = getattr(engine, "storage_manager", None)
    if storage is not None:
        leave(storage)


def leave(storage: Any, now: Callable[[], float] = time.monotonic) -> bool:
    """Waits for pending puts, then stops the event loop; False when puts were given up."""
    deadline = now() + BOUND
    while (pending := pending_puts(storage)) and now() < deadline:
        time.sleep(STEP)
    if pending:
        logger.warning("%d chunks did not reach the remote tier in %.0f s", pending, BOUND)
    storage.loop.call_soon_threadsafe(storage.loop.stop)
    storage.thread.join(max(STEP, deadline - now()))
    return not pending


def pending_puts(storage: Any) -> int:
    """Chunks that the backends have taken and not yet written."""
    return sum(len(getattr(each, "put_tasks", ())) for each in storage.storage_backends.values())
