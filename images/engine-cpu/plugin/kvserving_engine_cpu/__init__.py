"""What vLLM's CPU backend lacks for a prefill/decode pair with a remote KV tier.

A vLLM general plugin. It edits no file of vLLM, LMCache or NIXL: when one of the connectors is
asked for, the few names that must differ on CPU are rebound in that process (blocks, resp, leave,
pace); processes are forked (processes). Each rebinding is made for named versions; with any other
it is left out, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger("vllm.kvserving_engine_cpu")


def _for_lmcache() -> None:
    from kvserving_engine_cpu import blocks, leave, resp  # noqa: PLC0415  # torch and LMCache: seconds

    blocks.rebind()
    resp.rebind()
    leave.rebind()


def _for_nixl() -> None:
    from kvserving_engine_cpu import pace  # noqa: PLC0415  # loads UCX

    pace.rebind()


# Connector name → what to rebind before its class is handed out. MultiConnector asks for its
# children by these names too.
_PREPARATIONS: dict[str, Callable[[], None]] = {
    "LMCacheConnectorV1": _for_lmcache,
    "NixlConnector": _for_nixl,
    "NixlPullConnector": _for_nixl,
    "NixlPushConnector": _for_nixl,
}


def activate() -> None:
    """Entry point `vllm.general_plugins`: does nothing off the CPU platform, or a second time."""
    from vllm import envs  # noqa: PLC0415
    from vllm.distributed.kv_transfer.kv_connector.factory import (  # noqa: PLC0415
        KVConnectorFactory,
    )
    from vllm.platforms import current_platform  # noqa: PLC0415

    from kvserving_engine_cpu import processes  # noqa: PLC0415
    from kvserving_engine_cpu.seed import seed  # noqa: PLC0415

    if not current_platform.is_cpu():
        logger.info("not the CPU platform: nothing is changed")
        return
    processes.rebind()
    seed(envs.VLLM_CACHE_ROOT)
    prepare_connectors(KVConnectorFactory._registry)


def prepare_connectors(registry: dict[str, Callable[[], type]]) -> None:
    """Wraps the lazy loaders of vLLM's connector registry: nothing is imported before its use."""
    for name, prepare in _PREPARATIONS.items():
        stock = registry.get(name)
        if stock is None or getattr(stock, "kvserving", False):
            continue

        def load(stock: Callable[[], type] = stock, prepare: Callable[[], None] = prepare) -> type:
            connector = stock()
            prepare()
            return connector

        load.kvserving = True  # type: ignore[attr-defined]
        registry[name] = load
