"""Constructs LMCache's objects of one process: the seam between engine-sim and its KV tier.

`create` returns an LMCacheManager, which is what vLLM's LMCache connector uses too: in a worker it
carries the cache engine and the lookup server, in the front process the lookup client. LMCache's
classes are looked up in their modules when they are needed, so a package that replaces
`lmcache.v1.cache_engine.LMCacheEngine`, its StorageManager, the remote storage plugin or the lookup
classes before `create` is called is used here as in vLLM. `broadcast` and `broadcast_object` go
over all W ranks: stock LMCache takes vLLM's tensor-parallel group, which has one member under
prefill context parallelism, and then leaves the other ranks without KV. That is this simulation's
one deviation from the stock connector.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lmcache.integration.base_service_factory import BaseServiceFactory
from lmcache.v1 import cache_engine, config, manager, metadata
from lmcache.v1.internal_api_server import api_server
from lmcache.v1.lookup_client import factory as lookup

from kvserving_engine_sim.lmcache_tier import resp_race, stand_ins
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer_config import ConfigError, Connector

INSTANCE = "kvserving-engine-sim"
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "half": torch.float16}


@dataclass(frozen=True)
class Rank:
    """A worker's part: its number, its paged KV for LMCache, and collectives over all ranks."""

    number: int
    copier: Any
    broadcast: Callable[[Any, int], Any]
    broadcast_object: Callable[[Any, int], Any]


def prepare(connector: Connector) -> None:
    """Rebind what stock LMCache gets wrong or cannot find here. Once, before forking."""
    stand_ins.bind_hashing()
    resp_race.rebind()
    if not connector.sharded:
        return
    from kvserving_sharded_store.patches import install  # noqa: PLC0415  only where it is asked for

    verdict = install(vllm=None, stock_is_right=False)
    if not verdict.patch:
        raise ConfigError(verdict.message)


def load_config(connector: Connector) -> Any:
    """LMCache's own configuration: LMCACHE_CONFIG_FILE, then LMCACHE_*, then connector options."""
    path = os.environ.get("LMCACHE_CONFIG_FILE")
    if path:
        loaded = config.LMCacheEngineConfig.from_file(path)
        loaded.update_config_from_env()
    else:
        loaded = config.LMCacheEngineConfig.from_env()
    for key, value in connector.extra.items():
        if key.startswith("lmcache."):
            setattr(loaded, key.removeprefix("lmcache."), value)
    if connector.sharded:
        # As the package's own connector does in vLLM: it loads asynchronously by other means.
        loaded.enable_async_loading = False
        loaded.save_unfull_chunk = False
    # The service would receive the whole environment of the process.
    loaded.remote_config_url = None
    loaded.validate()
    return loaded


def torch_dtype(settings: Settings) -> Any:
    """The element type of the KV tensors: part of LMCache's keys, and nothing else here."""
    if settings.kv_cache_dtype.startswith("fp8"):
        return torch.uint8
    return _DTYPES.get(settings.kv_cache_dtype, torch.bfloat16)


def create(settings: Settings, loaded: Any, connector: Connector, rank: Rank | None = None) -> Any:
    """The LMCacheManager of a worker, or with no rank of the front process, services started."""
    built = manager.LMCacheManager(loaded, _Factory(settings, loaded, connector, rank))
    built.start_services()
    built.post_init()
    return built


class _Factory(BaseServiceFactory):  # type: ignore[misc]
    def __init__(
        self, settings: Settings, loaded: Any, connector: Connector, rank: Rank | None
    ) -> None:
        self._settings = settings
        self._config = loaded
        self._connector = connector
        self._rank = rank
        self._metadata: Any = None
        self._engine: Any = None

    def get_engine_instance_id(self) -> str:
        return INSTANCE

    def get_or_create_metadata(self) -> Any:
        if self._metadata is None:
            self._metadata = self._build_metadata()
        return self._metadata

    def get_or_create_lmcache_engine(self) -> Any:
        described = self.get_or_create_metadata()
        if self._rank is None:
            from lmcache.observability import PrometheusLogger  # noqa: PLC0415

            PrometheusLogger.GetOrCreate(described, config=self._config)
            return None
        if self._engine is None:
            self._engine = cache_engine.LMCacheEngineBuilder.get_or_create(
                INSTANCE,
                self._config,
                described,
                self._rank.copier,
                self._rank.broadcast,
                self._rank.broadcast_object,
            )
        return self._engine

    def maybe_create_lookup_client(self) -> Any:
        if self._rank is not None:
            return None
        return lookup.LookupClientFactory.create_lookup_client(
            self._config, self.get_or_create_metadata(), None
        )

    def maybe_create_lookup_server(self) -> Any:
        if self._rank is None:
            return None
        return lookup.LookupClientFactory.create_lookup_server(
            self.get_or_create_lmcache_engine(), self.get_or_create_metadata()
        )

    def maybe_create_prometheus_logger(self) -> None:
        return None

    def maybe_create_offload_server(self) -> None:
        return None

    def maybe_create_runtime_plugin_launcher(self) -> None:
        return None

    def maybe_create_internal_api_server(self, lmcache_manager: Any) -> Any:
        return api_server.InternalAPIServer(lmcache_manager)

    def maybe_create_health_monitor(self, lmcache_manager: Any) -> Any:
        return self._create_health_monitor(lmcache_manager, self._config, self._engine)

    def _build_metadata(self) -> Any:
        settings, layout = self._settings, self._settings.layout
        dtype = torch_dtype(settings)
        width = layout.words * 8 // dtype.itemsize
        number = 0 if self._rank is None else self._rank.number
        return metadata.LMCacheMetadata(
            model_name=settings.model,
            world_size=settings.world_size,
            local_world_size=settings.world_size,
            worker_id=number,
            local_worker_id=number,
            kv_dtype=dtype,
            kv_shape=(layout.layers, layout.parts, self._config.chunk_size, 1, width),
            use_mla=layout.replicated,
            role="scheduler" if self._rank is None else "worker",
            served_model_name=settings.served_names[0],
            chunk_size=self._config.chunk_size,
            engine_id=settings.transfer.engine_id,
            kv_connector_extra_config=dict(self._connector.extra),
        )
