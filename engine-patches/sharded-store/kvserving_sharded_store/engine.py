"""The LMCache engine with the sharded store in place of its remote backend. Needs LMCache.

What stays LMCache's: its configuration, its local cache and memory, its copies from and to the
accelerator, its lookup servers and its statistics. What is ours: who owns a chunk, its name, how it
travels, and how the ranks agree. LMCache's own remote backend is never built.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from typing import Any

import torch
from lmcache.v1 import cache_engine as upstream

from kvserving_sharded_store.blocks import PagedBytes
from kvserving_sharded_store.build import build
from kvserving_sharded_store.exchange import Cause
from kvserving_sharded_store.keys import realm
from kvserving_sharded_store.lookup import cumulative_lengths, sync_answer
from kvserving_sharded_store.marker import Markers
from kvserving_sharded_store.place import Chunk
from kvserving_sharded_store.selftest import MISMATCH, RoundTrip, all_agree
from kvserving_sharded_store.settings import Settings
from kvserving_sharded_store.store import ShardedStore
from kvserving_sharded_store.wiring import EngineKv

_log = logging.getLogger(__name__)

StockEngine = upstream.LMCacheEngine


class ShardedEngine(StockEngine):  # type: ignore[misc, valid-type]
    """An LMCache engine of one rank; see the module.

    Attributes:
        closed_by: Why the store is closed from the start; none normally.
        opened: Whether the store was tested, or closed: before that no lookup is answered with a
            hit, and nothing reported.
    """

    closed_by: str | None = None
    opened: bool = False
    # LMCache may fail before post_init; close, and whoever asks, find the engine without a store.
    _parts: ShardedStore | None = None
    _markers: Markers | None = None

    def post_init(self, **kwargs: Any) -> None:
        """Build the local cache on every rank, without LMCache's remote backend."""
        if self.post_inited:
            return
        self._settings = Settings.of(self.config)
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
                self._parts = build(self, self._settings, self.closed_by)
            return self._parts

    def open_store(self) -> None:
        """Test the path with all ranks; what was not shown to be right stays closed.

        Before the first request, by every rank of an engine whose caches can be copied as bytes.
        """
        if not self.post_inited:
            # It said why; the other ranks must not wait.
            self._vote(False)
            return
        fine = self.parts.closed is None
        if self._vote(fine):
            self._test()
        elif fine:
            self.parts.closed = "AnotherRank"
        self._markers = self._follow()
        self.opened = True

    def _vote(self, fine: bool) -> bool:  # noqa: FBT001 (one vote)
        return all_agree(self.metadata.world_size, self.metadata.worker_id, fine)

    def _test(self) -> None:
        if not self._settings.self_test or not isinstance(self.gpu_connector, PagedBytes):
            return
        trip = RoundTrip(self)
        if not trip.fits:
            _log.warning("round-trip self-test: left out, the KV cache has too few blocks for it")
            return
        if self._vote(trip.passes()):
            _log.info("round-trip self-test: passed")
            return
        self.parts.closed = MISMATCH
        _log.error("round-trip self-test: other bytes came back: nothing is loaded or stored")

    def _follow(self) -> Markers | None:
        tier = self.parts.tier
        if tier is None:
            return None
        return Markers(tier.instances, self._mismatched, time.monotonic)

    def _mismatched(self) -> None:
        self.parts.closed = MISMATCH

    def follow(self) -> None:
        """Look after instances that were connected to anew; every second or so."""
        if self._markers is not None and self.parts.closed is None:
            self._markers.look()

    def chunks_of(self, hashes: list[bytes], tags: dict[str, str]) -> list[Chunk]:
        """The chunks with these hashes."""
        size = self.config.chunk_size
        configs = {f"lmcache.tag.{name}": value for name, value in tags.items()}
        return self._chunks(
            hashes=hashes, offsets=[size] * len(hashes), request_configs=configs or None
        )

    def chunks_in(self, tokens: list[int]) -> list[Chunk]:
        """The whole chunks of a prompt."""
        return self._chunks(tokens=tokens)

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
        if not self.is_healthy() or self.is_frozen() or self.parts.closed is not None:
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
            EngineKv(self, kwargs),
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
