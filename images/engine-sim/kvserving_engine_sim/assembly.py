"""Puts one engine together: what exists before the fork of the workers, and what after it."""

from __future__ import annotations

import gc
import logging
import queue
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.scheduler.blocks import BlockPool
from kvserving_engine_sim.scheduler.external import Source, Sources
from kvserving_engine_sim.scheduler.scheduler import Limits, Scheduler
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer_config import Kind, LoadFailurePolicy
from kvserving_engine_sim.workers.pool import WorkerPool
from kvserving_engine_sim.workers.worker import serve

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forked:
    """The worker processes, and what the front shares with them."""

    settings: Settings
    caches: list[PagedKV]
    pool: WorkerPool
    tier_config: Any

    def remove_sockets(self) -> None:
        """Delete the files of LMCache's Unix sockets, which nobody else does."""
        if self.tier_config is None:
            return
        from lmcache.v1 import rpc_utils  # noqa: PLC0415  imported before the fork

        engine_id = self.settings.transfer.engine_id
        one = Path(rpc_utils.get_zmq_rpc_path_lmcache(engine_id, "lookup").removeprefix("ipc://"))
        for leftover in one.parent.glob(f"engine_{engine_id}_*"):
            leftover.unlink(missing_ok=True)


def fork_workers(settings: Settings, scratch: Path) -> Forked:
    """Import the heavy libraries once, then fork W workers. The process has one thread still."""
    config = _load_libraries(settings)
    caches = [PagedKV(settings.layout) for _ in range(settings.world_size)]
    pool = WorkerPool(settings, caches, scratch / "rendezvous")
    # Objects that live for ever are kept out of later collections, whose marks would copy their
    # pages in every worker.
    gc.freeze()
    gc.enable()
    pool.fork(serve, config)
    return Forked(settings, caches, pool, config)


def _load_libraries(settings: Settings) -> Any:
    """Import torch and LMCache if they are needed; LMCache's configuration if it is used."""
    connector = settings.transfer.of(Kind.LMCACHE)
    if connector is None:
        if settings.world_size > 1:
            import torch.distributed  # noqa: F401, PLC0415
        return None
    from kvserving_engine_sim.lmcache_tier import stand_ins  # noqa: PLC0415

    stand_ins.install()
    from kvserving_engine_sim.lmcache_tier import service, worker_side  # noqa: F401, PLC0415

    service.prepare(connector)
    return service.load_config(connector)


def build_core(forked: Forked) -> Any:
    """The engine core of workers that are ready; not started."""
    # After the fork: metric objects open files of the process that creates them.
    from kvserving_engine_sim.core import Core  # noqa: PLC0415
    from kvserving_engine_sim.metrics.engine import EngineMetrics  # noqa: PLC0415

    settings = forked.settings
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    blocks = BlockPool(settings.layout.num_blocks, caching=settings.prefix_caching)
    nixl = _build_nixl(forked, inbox.put)
    return Core(
        inbox=inbox,
        pool=forked.pool,
        blocks=blocks,
        scheduler=Scheduler(_limits(settings), blocks, Sources(_sources(forked, nixl))),
        nixl=nixl,
        metrics=EngineMetrics(settings),
        max_model_len=settings.max_model_len,
        recompute_failed_loads=settings.transfer.policy is LoadFailurePolicy.RECOMPUTE,
    )


def _build_nixl(forked: Forked, report: Callable[[Any], None]) -> Any:
    connector = forked.settings.transfer.of(Kind.NIXL)
    if connector is None:
        return None
    from kvserving_engine_sim.transfer.nixl import Nixl  # noqa: PLC0415  metrics, see above

    return Nixl(forked.settings, connector, forked.caches, report)


def _sources(forked: Forked, nixl: Any) -> list[Source]:
    """KV sources in the order of the configuration."""
    sources: list[Source] = []
    for connector in forked.settings.transfer.connectors:
        if connector.kind is Kind.NIXL:
            sources.append(nixl.source)
            continue
        from kvserving_engine_sim.lmcache_tier import service  # noqa: PLC0415
        from kvserving_engine_sim.lmcache_tier.source import TierSource  # noqa: PLC0415

        manager = service.create(forked.settings, forked.tier_config, connector)
        if manager.lookup_client is None:
            _log.error("LMCache's lookup client could not be created: serving without the tier")
            continue
        sources.append(TierSource(forked.tier_config, manager.lookup_client, connector.role))
    return sources


def _limits(settings: Settings) -> Limits:
    simulation = settings.simulation
    return Limits(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        block_size=settings.layout.block_size,
        tokens_per_second=simulation.tokens_per_second,
        inter_token_seconds=simulation.inter_token_seconds,
    )
