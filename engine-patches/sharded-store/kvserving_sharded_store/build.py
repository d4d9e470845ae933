"""Builds the store of one rank out of LMCache's engine and its configuration. Needs LMCache."""

from __future__ import annotations

import logging
from typing import Any

import torch
from lmcache.v1.memory_management import MemoryFormat

from kvserving_sharded_store.blocks import PagedBytes
from kvserving_sharded_store.grouping import Buffer
from kvserving_sharded_store.keys import Identity
from kvserving_sharded_store.local import LocalCache
from kvserving_sharded_store.place import Place
from kvserving_sharded_store.settings import Settings
from kvserving_sharded_store.store import ShardedStore
from kvserving_sharded_store.tier import Tier
from kvserving_sharded_store.wiring import EngineGroup, all_ranks

_log = logging.getLogger(__name__)


def build(engine: Any, settings: Settings, closed_by: str | None) -> ShardedStore:
    """The store; a closed one where it cannot be built, because an engine serves without it.

    Args:
        engine: A ``ShardedEngine`` after ``post_init``.
        settings: What is configured.
        closed_by: Why it is closed from the start; none normally.
    """
    metadata = engine.metadata
    if closed_by is None and settings.mismatches(metadata.use_mla):
        closed_by = "AttentionMismatch"
        _log.error(
            "attention is configured as %s, the model says %s: nothing is loaded, nothing stored",
            settings.attention,
            "MLA" if metadata.use_mla else "not MLA",
        )
    if closed_by is None:
        try:
            return _build(engine, settings)
        except ValueError as error:
            _log.error("sharded store: %s: nothing is loaded, nothing stored", error)
            closed_by = "BadConfiguration"
    return _closed(engine, closed_by)


def _place(metadata: Any, epoch: str) -> Place:
    return Place(
        rank=metadata.worker_id, world=metadata.world_size, shared=metadata.use_mla, epoch=epoch
    )


def _closed(engine: Any, reason: str) -> ShardedStore:
    backend = engine.storage_manager.local_cpu_backend
    local = LocalCache(backend, [torch.Size([1])], [torch.uint8], MemoryFormat.KV_2LTD)
    store = ShardedStore(
        _place(engine.metadata, ""),
        local,
        None,
        None,
        buffer=Buffer(most=1),
        put_bytes=0,
        chunk_bytes=1,
    )
    store.closed = reason
    return store


def _build(engine: Any, settings: Settings) -> ShardedStore:
    metadata, connector = engine.metadata, engine.gpu_connector
    backend = engine.storage_manager.local_cpu_backend
    if isinstance(connector, PagedBytes):
        local = LocalCache(backend, *connector.shapes)
        layout, device = connector.layout, connector.device
    else:
        fmt = MemoryFormat.KV_2LTD if engine.fmt is None else engine.fmt
        local = LocalCache(backend, metadata.get_shapes(), metadata.get_dtypes(), fmt)
        layout, device = local.layout, torch.device("cpu")
    rank, world, shared = metadata.worker_id, metadata.world_size, metadata.use_mla
    identity = Identity(
        model=metadata.model_name,
        revision=settings.revision,
        digest=settings.digest,
        # To torch all kinds of 8-bit floats may be the same bytes.
        dtype=" ".join([str(metadata.kv_dtype), *filter(None, [settings.element])]),
        chunk_tokens=engine.config.chunk_size,
        # Ranks that split the heads hold other bytes when there are more of them.
        layout=(*layout, 1 if shared else world),
        tier=settings.tier_epoch,
    )
    parties = world if shared else 1
    buffer = Buffer.of(
        size=max(settings.exchange_bytes, 2 * parties * local.chunk_bytes),
        chunk_bytes=local.chunk_bytes,
        world=parties,
    )
    addresses = settings.addresses(rank=rank, world=world)
    group = _group(metadata, local, buffer, device)
    store = ShardedStore(
        _place(metadata, identity.epoch),
        local,
        Tier(addresses, settings.options(addresses)) if addresses else None,
        group,
        buffer=buffer,
        put_bytes=int(engine.config.max_local_cpu_size * (1 << 30)) // 4,
        chunk_bytes=local.chunk_bytes,
    )
    if group is None and world > 1:
        store.closed = "NoGroup"
        _log.error("no process group of all %d ranks: nothing is loaded, nothing stored", world)
    return store


def _group(
    metadata: Any, local: LocalCache, buffer: Buffer, device: torch.device
) -> EngineGroup | None:
    """All ranks of the engine, none when there is one rank or no group of all."""
    groups = all_ranks(metadata.world_size, metadata.worker_id)
    if metadata.world_size == 1 or groups is None:
        return None
    return EngineGroup(
        local,
        *groups,
        chunk_bytes=local.chunk_bytes,
        most=buffer.most if metadata.use_mla else 1,
        device=device,
    )
