"""The LMCache engine with the sharded store in place of its remote backend. Needs LMCache.

What stays LMCache's: its configuration, its local cache and memory, its copies from and to the
accelerator, its lookup servers and its statistics. What is ours: who owns a chunk, its name, how it
travels, and how the ranks agree. LMCache's own remote backend is never built.
"""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import torch
import torch.distributed as dist
from lmcache.v1 import cache_engine as upstream
from lmcache.v1.memory_management import MemoryFormat

from kvserving_sharded_store.exchange import Cause
from kvserving_sharded_store.grouping import Buffer
from kvserving_sharded_store.keys import Identity, realm
from kvserving_sharded_store.local import LocalCache
from kvserving_sharded_store.lookup import cumulative_lengths, sync_answer
from kvserving_sharded_store.place import Chunk, Place
from kvserving_sharded_store.settings import Settings
from kvserving_sharded_store.store import ShardedStore
from kvserving_sharded_store.tier import Tier
from kvserving_sharded_store.wiring import EngineGroup, EngineKv

_log = logging.getLogger(__name__)

StockEngine = upstream.LMCacheEngine


class ShardedEngine(StockEngine):  # type: ignore[misc, valid-type]
    """An LMCache engine of one rank; see the module."""

    def post_init(self, **kwargs: Any) -> None:
        """Build the local cache on every rank, without LMCache's remote backend."""
        if self.post_inited:
            return
        self._settings = Settings.of(self.config)
        self._parts: ShardedStore | None = None
        self._parts_lock = threading.Lock()
        self._answer_lock = threading.Lock()
        self._lookup_server = kwargs.get("async_lookup_server")
        local_only = copy.copy(self.config)
        local_only.remote_url = None
        local_only.remote_storage_plugins = None
        self.storage_manager = upstream.StorageManager(
            local_only,
            self.metadata,
            event_manager=self.event_manager,
            lmcache_worker=self.lmcache_worker,
            async_lookup_server=self._lookup_server,
        )
        self.post_inited: bool = True

    @property
    def parts(self) -> ShardedStore:
        """The store; built at first use, when the shapes of the KV are known."""
        with self._parts_lock:
            if self._parts is None:
                self._parts = self._build()
            return self._parts

    def _build(self) -> ShardedStore:
        metadata, settings = self.metadata, self._settings
        fmt = MemoryFormat.KV_2LTD if self.fmt is None else self.fmt
        local = self._local = LocalCache(self.storage_manager.local_cpu_backend, metadata, fmt)
        rank, world, shared = metadata.worker_id, metadata.world_size, metadata.use_mla
        identity = Identity(
            model=metadata.model_name,
            revision=settings.revision,
            digest=settings.digest,
            dtype=str(metadata.kv_dtype),
            chunk_tokens=self.config.chunk_size,
            # Ranks that split the heads hold other bytes when there are more of them.
            layout=(*local.layout, 1 if shared else world),
            tier=settings.tier_epoch,
        )
        buffer = Buffer.of(
            size=settings.exchange_bytes,
            chunk_bytes=local.chunk_bytes,
            world=world if shared else 1,
        )
        addresses = settings.addresses(rank=rank, world=world)
        group = self._group(local, buffer)
        store = ShardedStore(
            Place(rank=rank, world=world, shared=shared, epoch=identity.epoch),
            local,
            Tier(addresses, settings.options(addresses)) if addresses else None,
            group,
            buffer=buffer,
            put_bytes=int(self.config.max_local_cpu_size * (1 << 30)) // 4,
            chunk_bytes=local.chunk_bytes,
        )
        if group is None and world > 1:
            store.closed = "NoGroup"
            _log.error("no process group of all %d ranks: nothing is loaded, nothing stored", world)
        return store

    def _group(self, local: LocalCache, buffer: Buffer) -> EngineGroup | None:
        """All ranks of the engine, none when there is one rank or no group of all.

        Stock LMCache takes the tensor-parallel group, which is wrong under context parallelism.
        """
        world = self.metadata.world_size
        if world == 1 or not dist.is_initialized() or dist.get_world_size() != world:
            return None
        return EngineGroup(
            local,
            dist.group.WORLD,
            dist.group.WORLD,
            chunk_bytes=local.chunk_bytes,
            most=buffer.most if self.metadata.use_mla else 1,
            device=torch.device("cpu"),
        )

    def _chunks(self, **given: Any) -> list[Chunk]:
        size = self.config.chunk_size
        found = []
        for start, end, key in self.token_database.process_tokens(**given):
            if end - start == size and start % size == 0:
                tags = {str(name): str(value) for name, value in key.tags or ()}
                found.append(Chunk(start // size, key, key.chunk_hash, realm(tags)))
        return found

    @torch.inference_mode()
    def store(
        self,
        tokens: Any = None,
        hashes: Any = None,
        offsets: Any = None,
        mask: Any = None,
        **kwargs: Any,
    ) -> None:
        """Copy this rank's own chunks into its memory and send them to its instances."""
        if not self.is_healthy() or self.is_frozen():
            return
        chunks = self.parts.owned(
            self._chunks(
                tokens=tokens,
                hashes=hashes,
                offsets=offsets,
                mask=mask,
                request_configs=kwargs.get("request_configs"),
            )
        )
        size = self.config.chunk_size
        stats = self.stats_monitor.on_store_request(len(chunks) * size)
        local, held, fresh = self.parts.local, [], []
        for chunk in chunks:
            memory = local.get(chunk.local_key)
            if memory is None:
                memory = local.allocate()
                if memory is None:
                    break
                fresh.append((chunk, memory))
            held.append((chunk, memory))
        try:
            if fresh:
                starts = [chunk.index * size for chunk, _ in fresh]
                ends = [start + size for start in starts]
                objects = [memory for _, memory in fresh]
                self.gpu_connector.batched_from_gpu(objects, starts, ends, **kwargs)
        except BaseException:
            for _, memory in held:
                local.release(memory)
            raise
        for chunk, memory in fresh:
            local.keep(chunk.local_key, memory)
        self.parts.put(held)
        self.stats_monitor.on_store_finished(stats, len(fresh) * size)

    def lookup(  # noqa: PLR0917 (upstream's signature)
        self,
        tokens: Any = None,
        hashes: Any = None,
        offsets: Any = None,
        search_range: Any = None,
        lookup_id: str | None = None,
        pin: bool = False,  # noqa: FBT001 (upstream's signature)
        request_configs: Any = None,
    ) -> int:
        """Start of the first chunk this rank owns and lacks; 0 when nothing may be loaded."""
        if not self.is_healthy() or self.parts.closed is not None:
            return 0
        count = sum(offsets) if tokens is None else len(tokens)
        stats = self.stats_monitor.on_lookup_request(count)
        chunks = self._chunks(
            tokens=tokens, hashes=hashes, offsets=offsets, request_configs=request_configs
        )
        found = self.parts.present(chunks, self._settings.lookup_seconds)
        size = self.config.chunk_size
        answer = sync_answer(
            self.parts.place.shard, len(chunks) * size, size, lambda index: index in found
        )
        self.stats_monitor.on_lookup_finished(stats, answer)
        return answer

    def async_lookup_and_prefetch(  # noqa: PLR0917 (upstream's signature)
        self,
        lookup_id: str,
        tokens: Any = None,
        hashes: Any = None,
        offsets: Any = None,
        search_range: Any = None,
        pin: bool = False,  # noqa: FBT001 (upstream's signature)
        request_configs: Any = None,
    ) -> None:
        """Bring this rank's leading chunks into its memory, then tell the scheduler."""
        chunks = self._chunks(
            tokens=tokens, hashes=hashes, offsets=offsets, request_configs=request_configs
        )
        size = self.config.chunk_size
        vector = cumulative_lengths(self.parts.place.shard, len(chunks) * size, size)

        def answer(length: int) -> None:
            if self._lookup_server is not None:
                # The server's socket must not be used by two threads at once.
                with self._answer_lock:
                    self._lookup_server.send_response_to_scheduler(lookup_id, length)

        if self.is_healthy() and self.parts.closed is None:
            seconds = self._settings.lookup_seconds
            self.parts.prefetch(lookup_id, chunks, vector, seconds, answer)
        else:
            answer(0)

    @torch.inference_mode()
    def retrieve(self, tokens: Any, mask: Any = None, **kwargs: Any) -> torch.Tensor:
        """Load on all ranks; the mask of what is loaded, the same on each of them."""
        result = torch.zeros(len(tokens), dtype=torch.bool)
        skipped = 0 if mask is None else int(mask.numel() - mask.long().sum())
        chunks = self._chunks(
            tokens=tokens, mask=mask, request_configs=kwargs.get("request_configs")
        )
        stats = self.stats_monitor.on_retrieve_request(len(tokens) - skipped)
        size = self.config.chunk_size
        start = skipped // size
        loaded = self.parts.load(
            kwargs.get("req_id"),
            chunks,
            start,
            EngineKv(self, self._local, kwargs),
            self._settings.load_seconds,
        )
        result[start * size : loaded.stop * size] = True
        if loaded.cause is not Cause.NONE:
            _log.warning(
                "loaded chunks %d to %d of %d: %s",
                start,
                loaded.stop,
                start + len(chunks),
                loaded.cause.name.lower(),
            )
        self.stats_monitor.on_retrieve_finished(stats, int(result.sum()))
        return result

    def lookup_unpin(self, lookup_id: str) -> None:
        """Give back what is held for a request."""
        self.parts.forget(lookup_id)

    def cleanup_memory_objs(self, lookup_id: str) -> None:
        """Give back what is held for an aborted request."""
        self.parts.forget(lookup_id)

    def clear(self, tokens: Any = None, locations: Any = None, request_configs: Any = None) -> int:
        """Clear this rank's local cache."""
        return int(self._clear(tokens, locations, request_configs))

    def _is_passive(self) -> bool:
        """No rank is: every one stores and loads chunks of its own."""
        return False

    def close(self) -> None:
        """End within a bound: the instances' threads first, then LMCache's."""
        if self._parts is not None and not self._parts.close():
            _log.warning("threads of the remote tier did not end in time")
        super().close()
