"""The LMCache file and environment, for engines that carry the stock LMCache client. Pure.

Keys and their defaults: LMCache 0.5.6, ``lmcache/v1/config.py``. Environment wins over the file.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import EngineFeature
from kvserving_operator.engines import paths
from kvserving_operator.engines.base import TIER_PASSWORD_KEY, TIER_USER, CacheSettings

_GIB: Final = 1 << 30


def cache_file(settings: CacheSettings) -> Mapping[str, Any]:
    """Content of ``lmcache.yaml``.

    ``builtin`` hashes can be computed by anybody, and the tier is shared, so the hash is always
    ``sha256_cbor``. Chunks that are not full, and metadata beside a chunk, would make values that
    other ranks cannot read.
    """
    content: dict[str, Any] = {
        "chunk_size": settings.chunk_tokens,
        "local_cpu": True,
        "max_local_cpu_size": _gib(settings.local_bytes_per_rank),
        "pre_caching_hash_algorithm": "sha256_cbor",
        "save_unfull_chunk": False,
        "extra_config": {"save_chunk_meta": False},
    }
    if settings.local_bytes_first_rank != settings.local_bytes_per_rank:
        # LMCache heeds it for MLA alone, where its other ranks allocate nothing.
        first = _gib(settings.local_bytes_first_rank)
        content["extra_config"]["first_rank_max_local_cpu_size"] = first
    if settings.remote:
        content["remote_serde"] = "naive"
    if settings.min_tokens is not None:
        content["min_retrieve_tokens"] = settings.min_tokens
    if EngineFeature.ASYNC_LOADING in settings.features:
        content["enable_async_loading"] = True
    if EngineFeature.SHARDED_STORE in settings.features:
        content["lookup_server_worker_ids"] = list(range(settings.ranks))
    return content


def _gib(count: int) -> float:
    """LMCache's unit of memory, which it calls GB."""
    return round(count / _GIB, 6)


def environment(settings: CacheSettings) -> tuple[EnvVar, ...]:
    """The environment of an engine with LMCache."""
    fixed = (
        EnvVar(name="LMCACHE_CONFIG_FILE", value=f"{paths.LMCACHE}/{paths.LMCACHE_FILE}"),
        EnvVar(name="LMCACHE_TRACK_USAGE", value="false"),
    )
    return (*fixed, *_remote_environment(settings)) if settings.remote else fixed


def _remote_environment(settings: CacheSettings) -> tuple[EnvVar, ...]:
    """Credentials and address of the one instance that the stock client knows.

    LMCache's ``redis://`` adapter takes user and password from the URL alone, so the URL is put
    together by the kubelet: no object holds it. LMCache also logs the URL at level INFO, hence the
    log level. The database number keeps epochs apart, because stock keys do not carry one.
    """
    host = settings.remote[0]
    return (
        EnvVar(name="LMCACHE_RESP_USERNAME", value=TIER_USER),
        EnvVar(
            name="LMCACHE_RESP_PASSWORD",
            value_from={"secretKeyRef": {"name": settings.auth_secret, "key": TIER_PASSWORD_KEY}},
        ),
        EnvVar(
            name="LMCACHE_REMOTE_URL",
            value="redis://$(LMCACHE_RESP_USERNAME):$(LMCACHE_RESP_PASSWORD)"
            f"@{host}/{settings.database}",
        ),
        EnvVar(name="LMCACHE_LOG_LEVEL", value="WARNING"),
    )
