"""What was seen of the tier's use over the last readings. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from kvserving_operator.measure import Interval
from kvserving_operator.status.measured import Traffic

PATIENCE: Final = 600.0
"""Seconds for which engines must write without a hit, or be idle, before it is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Since when what is so."""

    traffic: Traffic | None = None
    hits_missing_since: float | None = None
    """Monotonic second of the first write since the last hit."""
    quiet_since: float | None = None
    """Monotonic second since which nothing was written or read."""
    unknown_since: float | None = None
    """Monotonic second since which engines have told nothing, in a watch that has seen nothing."""

    def seen(self, interval: Interval, now: float) -> "Watched":
        """With one more interval; one in which nothing was measured changes nothing for long."""
        if interval.hits is None or interval.writes is None:
            return self._unmeasured(now)
        known = replace(self, unknown_since=None)
        # Also a hit that is recomputed shows that engines find what they wrote.
        if interval.hits > 0 or interval.spared:
            return Watched(traffic=Traffic.HITS)
        return known._without_hits(now) if interval.writes > 0 else known._quiet(now)

    def _unmeasured(self, now: float) -> "Watched":
        since = self.unknown_since if self.unknown_since is not None else now
        if now - since < PATIENCE:
            return replace(self, unknown_since=since)
        # What came meanwhile was not seen: whatever was counted before begins anew.
        traffic = Traffic.NOT_MEASURED if self.traffic is None else self.traffic
        return Watched(traffic=traffic, unknown_since=since)

    def _without_hits(self, now: float) -> "Watched":
        since = self.hits_missing_since if self.hits_missing_since is not None else now
        overdue = now - since >= PATIENCE
        traffic = Traffic.WRITES_WITHOUT_HITS if overdue else self.traffic
        return Watched(traffic=traffic, hits_missing_since=since)

    def _quiet(self, now: float) -> "Watched":
        quiet = self.quiet_since if self.quiet_since is not None else now
        # Hits that were once observed stay observed while nothing happens.
        idle = now - quiet >= PATIENCE and self.traffic in {None, Traffic.NOT_MEASURED}
        return replace(self, quiet_since=quiet, traffic=Traffic.NONE if idle else self.traffic)
