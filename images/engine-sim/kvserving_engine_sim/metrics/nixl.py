"""vLLM's NIXL metrics, fed from the simulated transfers."""

from __future__ import annotations

from kvserving_engine_sim.metrics import buckets
from kvserving_engine_sim.metrics.engine import Family
from kvserving_engine_sim.settings import Settings
from kvserving_engine_sim.transfer.outcome import Received


class NixlMetrics:
    """Both sides: transfers on the reader, leases on the producer. One thread only."""

    def __init__(self, settings: Settings) -> None:
        family = Family(settings.served_names[0])
        self._seconds = family.histogram(
            "nixl_xfer_time_seconds", "Duration of a transfer.", buckets.NIXL_SECONDS[1:]
        )
        self._post = family.histogram(
            "nixl_post_time_seconds", "Time to start a transfer.", buckets.NIXL_SECONDS
        )
        self._bytes = family.histogram(
            "nixl_bytes_transferred", "Bytes of a transfer.", buckets.NIXL_BYTES
        )
        self._descriptors = family.histogram(
            "nixl_num_descriptors", "Pieces of a transfer.", buckets.NIXL_DESCRIPTORS
        )
        self._failed = family.counter("nixl_num_failed_transfers", "Failed transfers.")
        family.counter("nixl_num_failed_notifications", "Failed finish notices.")
        self._expired = family.counter(
            "nixl_num_kv_expired_reqs", "Requests whose KV was not read in time."
        )
        self._late = family.counter(
            "nixl_num_notifications_after_expiry", "Finish notices without a lease."
        )

    def received(self, received: Received) -> None:
        """A read ended."""
        if received.error:
            self._failed.inc()
            return
        self._seconds.observe(received.seconds)
        self._post.observe(received.post_seconds)
        self._bytes.observe(received.bytes)
        self._descriptors.observe(received.descriptors)

    def failed(self) -> None:
        """A transfer could not be started."""
        self._failed.inc()

    def leases(self, expired: int, late: int) -> None:
        """Leases that ran out, and finish notices that came too late."""
        self._expired.inc(expired)
        self._late.inc(late)
