"""How far an engine is with letting go (pure).

The sequence, from the moment that the pod is not ready any more:

1. `Settling`: routers and Services still send for a moment.
2. `Quiet`: until nothing runs and nothing waits for 2 s, `timeout` at most.
3. `Lease`: a prefill keeps finished KV until its decode has fetched it: `lease` after the last
   request that ended here, none if none did or once the page says that the KV cache holds nothing.
4. `Done`, after `timeout` + `lease` at the latest. An engine that is down or silent has nothing to
   wait for: whoever restarts a hung engine must not be held up by the requests in it.

A drain belongs to a life of the engine: with the next one the pod serves again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvserving_agent.facts import Snapshot, is_silent

SETTLE_SECONDS = 5.0
"""A readiness probe every 2 s, two that fail, and what the watches of routers take."""
QUIET_SECONDS = 2.0


class Phase(StrEnum):
    """What is being waited for."""

    SETTLING = "Settling"
    QUIET = "Quiet"
    LEASE = "Lease"
    DONE = "Done"


class Reason(StrEnum):
    """Why there is nothing left to wait for."""

    QUIET = "Quiet"
    TIMEOUT = "Timeout"
    ENGINE_DOWN = "EngineDown"
    ENGINE_SILENT = "EngineSilent"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds: how long requests may take, and how long a decode may take to fetch KV."""

    timeout: float
    lease: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a drain stands; `reason` is that of `Done`, seconds count from its begin."""

    phase: Phase
    elapsed: float = 0.0
    reason: Reason | None = None
    lease_left: float = 0.0

    def data(self) -> dict[str, object]:
        """As it is answered, and as it stands in facts."""
        return {
            "phase": self.phase,
            "reason": self.reason,
            "elapsedSeconds": round(self.elapsed, 1),
            "leaseLeftSeconds": round(self.lease_left, 1),
        }


def progress(known: Snapshot, now: float, limits: Limits, stale_after: float) -> Progress:
    """How far the engine is; an engine that does not drain is only ever done, or not begun.

    Args:
        known: What is known of the engine.
        now: Monotonic seconds.
        limits: How long to wait at most.
        stale_after: Seconds of silence after which the engine counts as gone.
    """
    elapsed = 0.0 if known.draining is None else now - known.draining
    if known.health is not None and not known.health.good:
        return Progress(phase=Phase.DONE, elapsed=elapsed, reason=Reason.ENGINE_DOWN)
    if is_silent(known, now, stale_after):
        return Progress(phase=Phase.DONE, elapsed=elapsed, reason=Reason.ENGINE_SILENT)
    quiet = _is_quiet(known)
    if not quiet and elapsed < limits.timeout:
        phase = Phase.SETTLING if elapsed < SETTLE_SECONDS else Phase.QUIET
        return Progress(phase=phase, elapsed=elapsed)
    reason = Reason.QUIET if quiet else Reason.TIMEOUT
    left = _lease_left(known, now, limits)
    left = min(left, limits.timeout + limits.lease - elapsed)
    if left > 0 and not (quiet and _holds_nothing(known)):
        return Progress(phase=Phase.LEASE, elapsed=elapsed, lease_left=left)
    return Progress(phase=Phase.DONE, elapsed=elapsed, reason=reason)


def _lease_left(known: Snapshot, now: float, limits: Limits) -> float:
    ended = known.traffic.finished_at if known.traffic else None
    return 0.0 if ended is None else ended + limits.lease - now


def _holds_nothing(known: Snapshot) -> bool:
    """Blocks that a decode has yet to fetch are in use; those of known prefixes are not."""
    return known.sample is not None and known.sample.values.get("kvCacheUsage") == 0


def _is_quiet(known: Snapshot) -> bool:
    """A scrape after the pause of routers has shown an engine that was idle long enough."""
    sample, traffic = known.sample, known.traffic
    if known.draining is None or sample is None or traffic is None or traffic.idle_since is None:
        return False
    settled = sample.at - known.draining >= SETTLE_SECONDS
    return settled and sample.at - traffic.idle_since >= QUIET_SECONDS
