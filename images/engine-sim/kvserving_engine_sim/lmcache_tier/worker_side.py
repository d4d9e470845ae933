"""LMCache's worker side: loads before a step computes, stores after it."""

from __future__ import annotations

import logging
from typing import Any

import torch

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.lmcache_tier import service
from kvserving_engine_sim.lmcache_tier.copy import SlotCopy
from kvserving_engine_sim.transfer_config import ConfigError, Connector
from kvserving_engine_sim.workers import messages
from kvserving_engine_sim.workers.collectives import Collectives
from kvserving_engine_sim.workers.worker import Seat

_log = logging.getLogger(__name__)


def build(seat: Seat, connector: Connector, collectives: Collectives) -> TierWorker:
    """The tier of one rank, with the collectives over all ranks (see service.py)."""
    torch.set_num_threads(1)
    layers = seat.cache.layers(torch, service.torch_dtype(seat.settings))
    rank = service.Rank(
        seat.rank, SlotCopy(layers), collectives.broadcast, collectives.broadcast_object
    )
    manager = service.create(seat.settings, seat.tier_config, connector, rank)
    if manager.lmcache_engine is None:
        raise ConfigError("LMCache could not be initialised; its log says why")
    if connector.sharded:
        manager.lmcache_engine.open_store()
    return TierWorker(manager.lmcache_engine, seat.cache, layers)


class TierWorker:
    """One rank's cache engine. Every rank calls it for the same sequences in the same order."""

    def __init__(self, engine: Any, cache: PagedKV, layers: list[Any]) -> None:
        self._engine = engine
        self._cache = cache
        self._layers = layers

    @property
    def healthy(self) -> bool:
        """Whether LMCache would load."""
        return bool(self._engine.is_healthy())

    def refuse(self, sequence: messages.Sequence) -> int | None:
        """Load nothing; the tokens that are there without it."""
        return sequence.load.cached if sequence.load else None

    def load(self, sequence: messages.Sequence) -> int | None:
        """Load what the sequence asks for; the tokens that are there if they are too few."""
        load = sequence.load
        if load is None or sequence.prefix is None:
            return None
        chunk = self._engine.config.chunk_size
        mask = torch.ones(load.total, dtype=torch.bool)
        mask[: load.cached // chunk * chunk] = False
        loaded = self._engine.retrieve(
            sequence.prefix[: load.total].tolist(),
            mask,
            kvcaches=self._layers,
            slot_mapping=self._slots(sequence, load.total),
            vllm_cached_tokens=load.cached,
            req_id=sequence.request_id,
        )
        if not self._engine.async_loading:
            self._engine.lookup_unpin(sequence.request_id)
        missing = torch.nonzero(mask & ~loaded)
        if not len(missing):
            return None
        valid = max(load.cached, int(missing[0]))
        _log.warning(
            "request %s: KV of tokens %d to %d could not be loaded",
            sequence.request_id,
            valid,
            load.total,
        )
        return valid

    def save(self, sequence: messages.Sequence) -> None:
        """Store what the sequence asks for."""
        save = sequence.save
        if save is None or sequence.prefix is None:
            return
        mask = torch.ones(save.total, dtype=torch.bool)
        mask[: save.skip] = False
        self._engine.store(
            sequence.prefix[: save.total].tolist(),
            mask=mask,
            kvcaches=self._layers,
            slot_mapping=self._slots(sequence, save.total),
            offset=save.skip,
            req_id=sequence.request_id,
        )

    def unpin(self, lookup: str) -> None:
        """A lookup's chunks may be evicted again."""
        self._engine.lookup_unpin(lookup)

    def _slots(self, sequence: messages.Sequence, count: int) -> Any:
        return torch.from_numpy(self._cache.slots(sequence.blocks, count))
