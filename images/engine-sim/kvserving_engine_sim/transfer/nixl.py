"""All of the simulated NIXL of one engine, as far as its role goes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kvserving_engine_sim.kv.paged import PagedKV
from kvserving_engine_sim.metrics.nixl import NixlMetrics
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer.client import Reader
from kvserving_engine_sim.transfer.leases import Lease, Leases
from kvserving_engine_sim.transfer.outcome import Received
from kvserving_engine_sim.transfer.params import RemotePrefill
from kvserving_engine_sim.transfer.server import SideChannel
from kvserving_engine_sim.transfer.source import NixlSource
from kvserving_engine_sim.transfer_config import Connector, Role

_log = logging.getLogger(__name__)

_LEASE_SECONDS = 30.0
_RENEWALS_PER_LEASE = 6


class Nixl:
    """A producer has a side channel and leases, a consumer a reader; kv_both has all."""

    def __init__(
        self,
        settings: Settings,
        connector: Connector,
        caches: list[PagedKV],
        report: Callable[[Received], None],
    ) -> None:
        lease = float(connector.extra.get("kv_lease_duration", _LEASE_SECONDS))
        threads = int(connector.extra.get("num_threads", 4))
        produces, consumes = (
            connector.role is not Role.CONSUMER,
            connector.role is not Role.PRODUCER,
        )
        self._leases = Leases(lease) if produces else None
        self._channel = SideChannel(settings, caches, self._leases) if self._leases else None
        reader = Reader(settings, caches, report, threads) if consumes else None
        self.metrics = NixlMetrics(settings)
        self.source = NixlSource(settings, self._leases, reader, lease / _RENEWALS_PER_LEASE)

    def start(self) -> None:
        """Serve other engines."""
        if self._channel is not None:
            self._channel.start()

    def tick(self, waiting: list[RemotePrefill]) -> list[Lease]:
        """Renew what is `waiting` to be read; the leases that have ended, whose blocks are free."""
        self.source.renew(waiting)
        if self._leases is None:
            return []
        finished, expired = self._leases.collect()
        for lease in expired:
            _log.warning("the KV of request %s was not read in time", lease.request_id)
        self.metrics.leases(len(expired), self._leases.take_late_notices())
        return finished + expired

    def next_expiry(self) -> float | None:
        """Seconds until a lease ends by itself."""
        return self._leases.next_expiry() if self._leases else None
