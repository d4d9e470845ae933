"""Puts the sharded store in place of LMCache's names: all of them or none. Needs LMCache."""

from __future__ import annotations

import inspect
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from kvserving_sharded_store.versions import Verdict, judge, public

_log = logging.getLogger(__name__)

_SIGNATURES: Final = {
    "__init__": "config metadata token_database gpu_connector broadcast_fn broadcast_object_fn",
    "post_init": "kwargs",
    "store": "tokens hashes offsets mask kwargs",
    "retrieve": "tokens mask kwargs",
    "lookup": "tokens hashes offsets search_range lookup_id pin request_configs",
    "async_lookup_and_prefetch": (
        "lookup_id tokens hashes offsets search_range pin request_configs"
    ),
    "cleanup_memory_objs": "lookup_id",
    "lookup_unpin": "lookup_id",
    "clear": "tokens locations request_configs",
    "_clear": "tokens locations request_configs",
    "_is_passive": "",
    "is_healthy": "",
    "is_frozen": "",
    "close": "",
}
"""Methods of LMCacheEngine that are overridden or relied on, with their parameters after self."""


def _installed(distribution: str) -> str | None:
    try:
        return public(version(distribution))
    except PackageNotFoundError:
        return None


def _parameters(function: Any) -> str:
    return " ".join(name for name in inspect.signature(function).parameters if name != "self")


def _differences(engine: type[Any], builder: type[Any]) -> list[str]:
    found = [
        f"LMCacheEngine.{name}"
        for name, expected in _SIGNATURES.items()
        if _parameters(getattr(engine, name, lambda missing: missing)) != expected
    ]
    if _parameters(getattr(builder, "_Create_token_database", None) or (lambda: 0)) != (
        "config metadata"
    ):
        found.append("LMCacheEngineBuilder._Create_token_database")
    return found


def install(*, vllm: str | None, stock_is_right: bool) -> Verdict:
    """Rebind LMCache's names if the versions are known and the names are what was read.

    Args:
        vllm: Version of the vLLM this process serves with; none when it runs LMCache engines alone.
        stock_is_right: See ``versions.judge``.

    Returns:
        What was decided. Calling again changes nothing.
    """
    verdict = judge(
        None if vllm is None else public(vllm), _installed("lmcache"), stock_is_right=stock_is_right
    )
    if verdict.patch:
        verdict = _rebind(verdict, stock_is_right=stock_is_right)
    (_log.info if verdict.patch else _log.warning)("sharded store: %s", verdict.message)
    return verdict


def _rebind(verdict: Verdict, *, stock_is_right: bool) -> Verdict:
    from lmcache.v1 import cache_engine  # noqa: PLC0415 (only for versions that are known)

    from kvserving_sharded_store.engine import ShardedEngine, StockEngine  # noqa: PLC0415
    from kvserving_sharded_store.tokens import StableTokenDatabase  # noqa: PLC0415

    if cache_engine.LMCacheEngine is ShardedEngine:
        return verdict
    builder = cache_engine.LMCacheEngineBuilder
    wrong = _differences(StockEngine, builder)
    if cache_engine.LMCacheEngine is not StockEngine:
        wrong.append("LMCacheEngine is somebody else's already")
    if wrong:
        return Verdict(
            patch=False,
            stock=stock_is_right,
            message="not patched, unexpected: " + ", ".join(wrong),
        )
    cache_engine.LMCacheEngine = ShardedEngine
    builder._Create_token_database = staticmethod(StableTokenDatabase)
    return verdict
