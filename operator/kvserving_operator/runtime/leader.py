"""Leader election on one coordination.k8s.io/Lease, and the fence that makes it safe.

Two rules keep two processes from writing at once. A standby takes over only after the holder's
record has not changed for `duration` on the standby's own monotonic clock. The holder stops writing
`renew_deadline` after the *start* of its last successful renewal; a write that passed the fence
lasts at most `write_timeout` longer. So the last write ends before the take-over as long as
renew_deadline + write_timeout < duration, which LeaseTiming insists on. Wall clocks appear in the
record for people only and are never compared.

Leadership is crash-only: it is taken once, held, and when it is lost the process ends.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.transport import WRITE_TIMEOUT
from kvserving_operator.plan.model import Manifest

logger = logging.getLogger(__name__)

_FAILURES = (errors.RequestError, TimeoutError)


class LeadershipLostError(Exception):
    """This process may not act any more and must end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Seconds. The defaults are those of design section 8."""

    duration: float = 15.0
    renew_deadline: float = 8.0
    renew_interval: float = 2.0
    standby_interval: float = 1.0
    write_timeout: float = WRITE_TIMEOUT

    def __post_init__(self) -> None:
        if self.renew_deadline + self.write_timeout >= self.duration:
            raise ValueError(
                f"lease duration {self.duration} s must exceed renew deadline "
                f"{self.renew_deadline} s plus write timeout {self.write_timeout} s"
            )
        if 2 * self.renew_interval >= self.renew_deadline:
            raise ValueError("the renew deadline must leave room for two renewals")


def boottime() -> float:
    """Monotonic seconds that also run while the machine is suspended, where the kernel has them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class _Observed:
    record: tuple[Any, ...]
    since: float


class LeaderElector:
    """Takes, holds and releases the Lease; `fence` guards every write of the process."""

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        predecessor: str = "",
        timing: LeaseTiming | None = None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        """`client` must be unfenced and make one attempt a request.

        `predecessor` is an identity prefix that only dead processes can still carry (an earlier
        run of this very container): its Lease is taken without waiting. Empty means nobody.
        """
        self.timing = timing or LeaseTiming()
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._predecessor = predecessor
        self._clock = clock
        self._lease: Manifest | None = None
        self._renewed: float | None = None
        self._observed: _Observed | None = None
        self._answered_at: float | None = None

    @property
    def leading(self) -> bool:
        """True while writes are allowed."""
        return self._renewed is not None and self._clock() < self._deadline(self._renewed)

    def answered_within(self, seconds: float) -> bool:
        """True when the API server has answered about the Lease that recently."""
        return self._answered_at is not None and self._clock() - self._answered_at < seconds

    def fence(self) -> None:
        """Raise FencedError unless a write that starts now ends before anybody else may lead."""
        if not self.leading:
            raise errors.FencedError("leadership is not certain: no write is sent")

    async def acquire(self) -> None:
        """Return once this process leads."""
        patience = self.timing.renew_deadline
        while not await self._quietly(self._try_acquire, patience):  # noqa: ASYNC110 the change is remote
            await asyncio.sleep(self.timing.standby_interval * random.uniform(0.8, 1.2))  # noqa: S311
        logger.info("leading as %s", self.identity)

    async def hold(self) -> None:
        """Renew until leadership is lost; then raise LeadershipLostError."""
        while True:
            if self._renewed is None or not self.leading:
                raise LeadershipLostError("the renew deadline passed without a renewal")
            await asyncio.sleep(self.timing.renew_interval)
            await self._quietly(self._renew, self._renewal_limit)

    async def release(self) -> None:
        """Give the Lease back, so that a standby need not wait for it to expire.

        The fence closes first: the caller has stopped its workers, and nothing may follow.
        """
        lease, self._lease, self._renewed = self._lease, None, None
        if lease is None:
            return
        try:
            async with asyncio.timeout(self._renewal_limit):
                await self._release(lease)
        except _FAILURES as error:
            logger.warning("the Lease could not be released and will expire: %s", error)
        else:
            logger.info("released the Lease")

    async def _release(self, lease: Manifest) -> None:
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._client.replace(lease | {"spec": self._record(lease) | freed})
        except errors.ConflictError:
            # A renewal that was cancelled on our side may have been stored all the same.
            current = await self._client.get(paths.LEASES, self._namespace, self._name)
            if current is not None and current["spec"].get("holderIdentity") == self.identity:
                await self._client.replace(current | {"spec": self._record(current) | freed})

    # Internals

    def _deadline(self, renewed: float) -> float:
        return renewed + self.timing.renew_deadline

    @property
    def _renewal_limit(self) -> float:
        """Seconds of one renewal: they leave time for a second one before the renew deadline."""
        return self.timing.renew_deadline / 2 - self.timing.renew_interval / 2

    async def _quietly(self, action: Callable[[], Awaitable[bool]], limit: float) -> bool:
        """Run one attempt; failures of the API server are logged and count as not done."""
        try:
            async with asyncio.timeout(limit):
                return await action()
        except _FAILURES as error:
            logger.warning("leader election: %s", error or type(error).__name__)
            return False

    async def _try_acquire(self) -> bool:
        lease = await self._client.get(paths.LEASES, self._namespace, self._name)
        self._answered_at = self._clock()
        if lease is None:
            return await self._write(self._client.create, self._new(), self._clock())
        if not self._free(lease):
            return False
        transitions = int(lease.get("spec", {}).get("leaseTransitions") or 0) + 1
        spec = self._record(lease) | {
            "acquireTime": _timestamp(),
            "leaseTransitions": transitions,
        }
        return await self._write(self._client.replace, lease | {"spec": spec}, self._clock())

    def _free(self, lease: Manifest) -> bool:
        """True when nobody holds the Lease, or its holder has shown no life for its duration."""
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in {"", self.identity}:
            # Ours before we knew: the answer to our own write was lost.
            return True
        if self._predecessor and holder.startswith(self._predecessor):
            return True
        record = (holder, spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        now = self._clock()
        if self._observed is None or self._observed.record != record:
            self._observed = _Observed(record, now)
        # The holder's own duration counts: it is the one that it lives by.
        duration = float(spec.get("leaseDurationSeconds") or self.timing.duration)
        return now - self._observed.since > duration

    async def _renew(self) -> bool:
        """One renewal; LeadershipLostError when another process has taken the Lease."""
        if self._lease is None:
            raise LeadershipLostError("released")
        started = self._clock()
        spec = self._record(self._lease)
        try:
            return await self._write(self._client.replace, self._lease | {"spec": spec}, started)
        except (errors.ConflictError, errors.NotFoundError):
            return await self._settle()

    async def _settle(self) -> bool:
        """After a conflict: a deleted Lease is made again, our own lost answer is no loss."""
        lease = await self._client.get(paths.LEASES, self._namespace, self._name)
        started = self._clock()
        if lease is None:
            # A PUT to an object that is gone is answered by 409 as well.
            logger.warning("the Lease was deleted; creating it again")
            return await self._write(self._client.create, self._new(), started)
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        if holder != self.identity:
            self._renewed = None
            raise LeadershipLostError(f"the Lease is held by {holder or 'nobody'}")
        spec = self._record(lease)
        return await self._write(self._client.replace, lease | {"spec": spec}, started)

    async def _write(
        self, send: Callable[[Manifest], Awaitable[Manifest]], lease: Manifest, started: float
    ) -> bool:
        """Write the Lease; the time *before* the request is what leadership counts from."""
        self._lease = await send(lease)
        self._renewed = started
        self._answered_at = self._clock()
        return True

    def _record(self, lease: Manifest) -> Manifest:
        return dict(lease.get("spec") or {}) | {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.timing.duration),
            "renewTime": _timestamp(),
        }

    def _new(self) -> Manifest:
        return {
            "apiVersion": paths.LEASES.api_version,
            "kind": paths.LEASES.kind,
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": self._record({}) | {"acquireTime": _timestamp(), "leaseTransitions": 0},
        }


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
