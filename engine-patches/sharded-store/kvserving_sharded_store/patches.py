"""Puts the sharded store in place of LMCache's names: all of them or none. Needs LMCache."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kvserving_sharded_store import contract
from kvserving_sharded_store.versions import Verdict, judge, public

_log = logging.getLogger(__name__)


def installed(distribution: str) -> str | None:
    """A distribution's version without its local part, none when it is not installed."""
    try:
        return public(version(distribution))
    except PackageNotFoundError:
        return None


def install(*, vllm: str | None, stock_is_right: bool) -> Verdict:
    """Rebind LMCache's names if the versions are known and the names are what was read.

    Args:
        vllm: Version of the vLLM this process serves with; none when it runs LMCache engines alone.
        stock_is_right: See ``versions.judge``.

    Returns:
        What was decided. Calling again changes nothing.
    """
    verdict = judge(
        None if vllm is None else public(vllm), installed("lmcache"), stock_is_right=stock_is_right
    )
    if verdict.patch:
        verdict = _checked(verdict, vllm, stock_is_right=stock_is_right)
    (_log.info if verdict.patch else _log.warning)("sharded store: %s", verdict.message)
    return verdict


def _checked(verdict: Verdict, vllm: str | None, *, stock_is_right: bool) -> Verdict:
    from lmcache.v1 import cache_engine  # noqa: PLC0415 (only for versions that are known)

    from kvserving_sharded_store.engine import ShardedEngine, StockEngine  # noqa: PLC0415

    if cache_engine.LMCacheEngine is ShardedEngine:
        return verdict
    wrong = contract.differences(contract.LMCACHE)
    if vllm is not None:
        wrong += contract.differences((*contract.LMCACHE_IN_VLLM, *contract.VLLM))
    if cache_engine.LMCacheEngine is not StockEngine:
        wrong.append("LMCacheEngine is somebody else's already")
    if wrong:
        return Verdict(
            patch=False,
            stock=stock_is_right,
            message="not patched, unexpected: " + ", ".join(wrong),
        )
    _rebind(cache_engine, ShardedEngine, serving=vllm is not None)
    return verdict


def _rebind(cache_engine: Any, engine: type[Any], *, serving: bool) -> None:
    from lmcache.v1 import gpu_connector  # noqa: PLC0415
    from lmcache.v1.lookup_client.factory import LookupClientFactory  # noqa: PLC0415

    from kvserving_sharded_store.blocks import PagedBytes  # noqa: PLC0415
    from kvserving_sharded_store.client import StoreClient  # noqa: PLC0415
    from kvserving_sharded_store.desk import Desk  # noqa: PLC0415
    from kvserving_sharded_store.tokens import StableTokenDatabase  # noqa: PLC0415

    def client(config: Any, metadata: Any, lmcache_engine: Any = None) -> StoreClient:
        return StoreClient(config, metadata)

    def server(lmcache_engine: Any, metadata: Any) -> Desk:
        return Desk(lmcache_engine, metadata)

    cache_engine.LMCacheEngine = engine
    cache_engine.LMCacheEngineBuilder._Create_token_database = staticmethod(StableTokenDatabase)
    LookupClientFactory.create_lookup_client = staticmethod(client)
    LookupClientFactory.create_lookup_server = staticmethod(server)
    if not serving:
        return
    stock = gpu_connector.CreateGPUConnector

    def create(config: Any, metadata: Any, engine: Any, layout_hints: Any = None) -> Any:
        if getattr(engine, "name", "") != "VLLM":
            return stock(config, metadata, engine, layout_hints)
        if config.use_layerwise or config.enable_blending:
            raise ValueError("the sharded store has neither use_layerwise nor enable_blending")
        return PagedBytes(config.chunk_size)

    gpu_connector.CreateGPUConnector = create
    # Nobody asks it anything, and under prefill context parallelism all ranks of an engine give it
    # the same socket: it is named by the tensor-parallel rank.
    from lmcache.integration.vllm.vllm_service_factory import VllmServiceFactory  # noqa: PLC0415

    VllmServiceFactory.maybe_create_offload_server = lambda _self: None
