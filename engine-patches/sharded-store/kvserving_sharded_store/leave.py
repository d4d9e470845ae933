"""Lets vLLM's front end end: no request waits for an engine that is gone.

When vLLM stops with requests under way it ends the engine, and then two tasks of the front end in
one breath: the one that hears that the engine is gone, and the one that tells the requests. On an
event loop with anything else to do, a scrape is enough, the second ends before it has told anybody.
Then the requests wait for ever, and the HTTP server for the requests: the process stays until it is
killed, as seen with 0.32.0, with our connector, without one, and after a drain that was too short.
Here the requests are told once more, afterwards. Their clients get the error that vLLM means them
to get.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
from typing import Any, Final

from kvserving_sharded_store import contract

_log = logging.getLogger(__name__)

_MARK: Final = "kvserving_tells"


def is_front_end(name: str, *, child: bool) -> bool:
    """Whether requests come in at a process: the first one, or one of several API servers.

    Args:
        name: The process', as multiprocessing has it.
        child: Whether another process started it.
    """
    return not child or name.startswith("ApiServer")


def uses(kv_transfer: Any, connector: str) -> bool:
    """Whether a kv-transfer-config, none without one, names a connector, alone or among others.

    ``kv_transfer`` has vLLM's attributes ``kv_connector`` and ``kv_connector_extra_config``.
    """
    more = getattr(kv_transfer, "kv_connector_extra_config", None) or {}
    named = [each.get("kv_connector") for each in more.get("connectors", ())]
    return connector in {getattr(kv_transfer, "kv_connector", None), *named}


def rebind(connector: str) -> None:
    """Give vLLM's front end a shutdown that tells all requests, in engines with this connector."""
    process = multiprocessing.current_process()
    if not is_front_end(process.name, child=multiprocessing.parent_process() is not None):
        return
    wrong = contract.differences(contract.FRONT_END)
    if wrong:
        _log.info("vLLM's shutdown is left as it is, unexpected: %s", ", ".join(wrong))
        return
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415
    from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415

    stock = AsyncLLM.shutdown
    if hasattr(stock, _MARK):
        return

    @functools.wraps(stock)
    def shutdown(self: Any, timeout: float | None = None) -> None:
        try:
            stock(self, timeout)
        finally:
            config = getattr(self, "vllm_config", None)
            if uses(getattr(config, "kv_transfer_config", None), connector):
                _tell(self, EngineDeadError())

    setattr(shutdown, _MARK, True)
    AsyncLLM.shutdown = shutdown


def _tell(engine: Any, error: Exception) -> None:
    """Every request that waits for a result is told that there will be none; in its own loop."""
    handler = getattr(engine, "output_handler", None)
    if handler is None:
        return
    # RuntimeError: the loop is closed, hence nobody waits in it.
    with contextlib.suppress(RuntimeError):
        loop = handler.get_loop()
        loop.call_soon_threadsafe(engine.output_processor.propagate_error, error)
