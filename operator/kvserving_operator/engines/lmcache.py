"""The LMCache file and environment, for the stock LMCache client and for our store in it. Pure.

Keys and their defaults: LMCache 0.5.6, ``lmcache/v1/config.py``. Environment wins over the file.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import Attention, EngineFeature
from kvserving_operator.engines import paths, ports
from kvserving_operator.engines.base import CacheSettings, TierAccess, TierAuth

_GIB: Final = 1 << 30
_EXTRA: Final = {"save_chunk_meta": False}
_AUTHORITY: Final = f"{paths.TIER_AUTHORITY}/{paths.AUTHORITY_FILE}"
_SEED_DIGITS: Final = 8
"""Python's hash seed has 32 bits. vLLM's first hash, and with it LMCache's, is made from it."""


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
    }
    if not knows_ranks(settings):
        content["extra_config"] = dict(_EXTRA)
    if settings.local_bytes_first_rank != settings.local_bytes_per_rank:
        # LMCache heeds it for MLA alone, where its other ranks allocate nothing.
        first = _gib(settings.local_bytes_first_rank)
        content["extra_config"]["first_rank_max_local_cpu_size"] = first
    if settings.remote is not None:
        content["remote_serde"] = "naive"
        if knows_ranks(settings):
            content["remote_url"] = _ranked_url(settings.remote)
    if settings.min_tokens is not None and not knows_ranks(settings):
        content["min_retrieve_tokens"] = settings.min_tokens
    if EngineFeature.ASYNC_LOADING in settings.features:
        content["enable_async_loading"] = True
    if EngineFeature.SHARDED_STORE in settings.features:
        content["lookup_server_worker_ids"] = list(range(settings.ranks))
    return content


def knows_ranks(settings: CacheSettings) -> bool:
    """Whether the image's client asks the instances of its own rank, under keys with an epoch."""
    return EngineFeature.RANKED_REMOTE in settings.features


def _ranked_url(remote: TierAccess) -> str:
    """The address with its placeholders; user and password come from the environment."""
    return f"{'valkeys' if remote.tls else 'resp'}://{remote.template}"


def store_config(settings: CacheSettings) -> Mapping[str, Any]:
    """LMCache's ``extra_config`` with what the store reads (kvserving_sharded_store/settings.py).

    It is part of the pod and not of the file: an engine of an old revision that restarts in mid
    rollout finds the new file, and would give its KV the keys of the new epoch.
    """
    auto = settings.attention is Attention.AUTO
    content: dict[str, Any] = {
        **_EXTRA,
        "kvserving.revision": settings.revision,
        "kvserving.digest": settings.digest,
        "kvserving.attention": "" if auto else settings.attention.value,
        "kvserving.mode": settings.loading.value,
        "kvserving.min_tokens": settings.min_tokens or 0,
        "kvserving.control_port": ports.STORE_CONTROL.number,
    }
    if settings.remote is None:
        return content
    content["kvserving.tier_epoch"] = settings.remote.epoch
    content["kvserving.instances_per_rank"] = settings.remote.slots
    if settings.remote.authority_secret:
        content["kvserving.ca_file"] = _AUTHORITY
    return content


def _gib(count: int) -> float:
    """LMCache's unit of memory, which it calls GB."""
    return round(count / _GIB, 6)


def environment(settings: CacheSettings) -> tuple[EnvVar, ...]:
    """The environment of an engine with LMCache."""
    fixed: tuple[EnvVar, ...] = (
        EnvVar(name="LMCACHE_CONFIG_FILE", value=f"{paths.LMCACHE}/{paths.LMCACHE_FILE}"),
        EnvVar(name="LMCACHE_TRACK_USAGE", value="false"),
    )
    if knows_ranks(settings):
        store = json.dumps(store_config(settings), sort_keys=True, separators=(",", ":"))
        fixed = (*fixed, EnvVar(name="LMCACHE_EXTRA_CONFIG", value=store))
    if settings.remote is None:
        return fixed
    credentials = _credentials(settings.remote.auth) if settings.remote.auth else ()
    if knows_ranks(settings):
        return (*fixed, *credentials)
    return (*fixed, *credentials, *_stock_environment(settings.remote))


def _credentials(auth: TierAuth) -> tuple[EnvVar, ...]:
    user = (
        EnvVar(name="LMCACHE_RESP_USERNAME", value=auth.user)
        if auth.user is not None
        else EnvVar(name="LMCACHE_RESP_USERNAME", value_from=_key(auth.secret, auth.user_key))
    )
    password = _key(auth.secret, auth.password_key)
    return (user, EnvVar(name="LMCACHE_RESP_PASSWORD", value_from=password))


def _key(secret: str, key: str) -> Mapping[str, Any]:
    return {"secretKeyRef": {"name": secret, "key": key}}


def _stock_environment(remote: TierAccess) -> Iterator[EnvVar]:
    """Address of the one instance that the stock client knows.

    LMCache's ``redis://`` adapter takes user and password from the URL alone, so the URL is put
    together by the kubelet: no object holds it. LMCache also logs the URL at level INFO, hence the
    log level. Stock keys do not carry an epoch: a seed that enters the hash of each chunk keeps
    one apart from another. Of a managed tier each has a database besides, but those are few, and
    two epochs may meet in one.
    """
    user = "$(LMCACHE_RESP_USERNAME):$(LMCACHE_RESP_PASSWORD)@" if remote.auth else ""
    database = "" if remote.database is None else f"/{remote.database}"
    # Read by redis-py from the URL: there is no other way to it through LMCache.
    authority = f"?ssl_ca_certs={_AUTHORITY}" if remote.authority_secret else ""
    scheme = "rediss" if remote.tls else "redis"
    url = f"{scheme}://{user}{remote.instances[0]}{database}{authority}"
    yield EnvVar(name="LMCACHE_REMOTE_URL", value=url)
    yield EnvVar(name="LMCACHE_LOG_LEVEL", value="WARNING")
    yield EnvVar(name="PYTHONHASHSEED", value=str(int(remote.epoch[:_SEED_DIGITS], 16)))
