"""Running instances of the tier follow its memory before their pods are replaced.

What grows gets its pod first: an instance in a pod of the old size must not fill what it does not
have. What shrinks is told its new limit at once, and lets go of the keys used least. On disks that
matters: an instance writes all that it holds when it ends, and would read all of it in a pod that
is too small. So such a pod is replaced when what it holds fits.

A change that is taken back leaves pods of the present revision with the limit of the other one:
the look at the tier shows it, and they are told too.
"""

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from kvserving_operator.api import quantity
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.instances import addresses_of
from kvserving_operator.observe.labels import selector
from kvserving_operator.observe.silences import Silences
from kvserving_operator.observe.tier_client import (
    TIMEOUT,
    Address,
    Login,
    TierError,
    connected,
)
from kvserving_operator.plan.model import AuthMaterial, Manifest, Plan
from kvserving_operator.plan.tier import MAXMEMORY_SHARE
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.render.secret import OPERATOR_USER

logger = logging.getLogger(__name__)

_BESIDE: Final = 1.05
"""What an instance uses may exceed its limit by the buffers of its clients, and stay so while it is
in use. A pod has a third more than the limit (``MAXMEMORY_SHARE``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How full an instance is, in bytes, after it was told its limit."""

    used: int | None
    """None: it does not say."""
    limit: int

    @property
    def fits(self) -> bool:
        """Whether it holds no more than it may, but for what clients use beside it."""
        return self.used is not None and self.used <= self.limit * _BESIDE


async def resized(
    client: ApiClient,
    plan: Plan,
    observed: Observed,
    healths: Mapping[Role, RoleHealth | None],
    limits: Set[int] = frozenset(),
    *,
    hung: Silences[str] | None = None,
) -> Mapping[str, str]:
    """Tell the instances in pods of an old revision what they may hold.

    `limits`: what instances said at the last look that they may hold, in bytes; where that is not
    what the plan says, all are told. `hung`: instances that are left alone, by address. Those that
    must not be replaced yet, by name, with the reason.
    """
    tier, secret = plan.tier, observed.child(paths.SECRETS, plan.names.auth)
    health = healths.get(Role.VALKEY)
    if tier is None or secret is None or health is None or plan.rollout_paused:
        return {}
    strayed = not limits <= {tier.maxmemory_bytes}
    if not health.outdated and not strayed:
        return {}
    auth = auth_from(secret)
    pods = await client.list(
        paths.PODS, plan.namespace, selector=selector(plan.name, Role.VALKEY.value), fresh=True
    )
    bounds = {pod["metadata"]["name"]: allowed(pod, tier.maxmemory_bytes) for pod in pods}
    shrink = {pod["metadata"]["name"] for pod in pods if _most(pod) > tier.maxmemory_bytes}
    old = {pod.name for pod in health.pods if pod.revision != health.revision}
    due = bounds.keys() & ({pod.name for pod in health.pods} if strayed else old)
    found = await addresses_of(client, plan, tier, observed)
    asked = {name: at for name, at in found.items() if at is not None and name in due}
    left = hung or Silences[str](time.monotonic, probe=TIMEOUT)
    fits = await asyncio.gather(
        *(_told_unless_hung(at, auth, bounds[name], left) for name, at in asked.items())
    )
    if tier.volume is None:
        return {}
    reasons = {
        name: _obstacle(fit, shrinks=name in shrink)
        for name, fit in zip(asked, fits, strict=True)
        if name in old
    }
    return {name: why for name, why in reasons.items() if why}


async def _told_unless_hung(
    address: Address, auth: AuthMaterial, limit: int, hung: Silences[str]
) -> Fit | None:
    return await hung.ask(
        address,
        lambda: told(address, auth, limit),
        wrong=lambda fit: "hangs" if fit is None else None,
        alone=lambda _: None,
    )


def _obstacle(fit: Fit | None, *, shrinks: bool) -> str:
    """Why an instance on disks must not be replaced yet; empty: it may be."""
    if fit is None or fit.used is None:
        return "does not say what it holds" * shrinks
    return "" if fit.fits else "holds more than its next pod has room for"


def allowed(pod: Manifest, wanted: int) -> int:
    """Bytes that an instance may hold in this pod: what is wanted, within the pod's own limit."""
    return int(min(wanted, _most(pod)))


def _most(pod: Manifest) -> float:
    """Bytes that an instance may hold in this pod at most."""
    containers: list[dict[str, Any]] = (pod.get("spec") or {}).get("containers") or []
    for container in containers:
        if container["name"] == Role.VALKEY.value:
            limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
            return int(quantity.to_bytes(limit) * MAXMEMORY_SHARE) if limit else math.inf
    return math.inf


async def told(address: Address, auth: AuthMaterial, limit: int) -> Fit | None:
    """How full the instance is, once it knows its limit; None where it cannot be asked."""
    login = Login(user=OPERATOR_USER, password=auth.operator_password)
    try:
        async with connected(address, login) as session:
            found = await session.ask("CONFIG", "GET", "maxmemory")
            if not isinstance(found, list) or found[1:2] != [b"%d" % limit]:
                await session.ask("CONFIG", "SET", "maxmemory", limit)
                logger.info("an instance of the tier may hold %d bytes now", limit)
            return Fit(used=_used(await session.ask("INFO", "memory")), limit=limit)
    except TierError:
        return None


def _used(info: object) -> int | None:
    text = info.decode(errors="replace") if isinstance(info, bytes) else ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "used_memory" and value.isascii() and value.isdigit():
            return int(value)
    return None
