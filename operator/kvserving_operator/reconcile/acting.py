"""From a plan to written children: what is wanted, what forbids it, what is kept up instead."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key, Resource, resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.store import StoreHealth
from kvserving_operator.observe.tier_health import TierHealth
from kvserving_operator.plan.model import Defaults, Manifest, Plan, Refusal
from kvserving_operator.plan.naming import child_names
from kvserving_operator.plan.rotation import request_of
from kvserving_operator.reconcile.acceptance import Wanted, last_good, trusted_record
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.reconcile.changes import Applied, Comparison, Rotation
from kvserving_operator.reconcile.children import Children
from kvserving_operator.reconcile.losses import losses_of
from kvserving_operator.reconcile.memory import Memory
from kvserving_operator.reconcile.rechecks import by_api
from kvserving_operator.reconcile.tuning import Tuned
from kvserving_operator.status import Event, Trouble
from kvserving_operator.status.transfer import Transfers
from kvserving_operator.status.vitals import Vitals

logger = logging.getLogger(__name__)

Teller = Callable[[Key, str, Event], Awaitable[None]]
"""Writes an event about the KVServing of this key and uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A planned object after its children were (or were not) written."""

    observed: Observed
    applied: Applied
    pending: tuple[str, ...] = ()
    """Children that differ from the plan and were left so, because the object is suspended."""
    absent: tuple[str, ...] = ()
    """Kinds that the cluster does not know."""
    held: tuple[str, ...] = ()
    """Children that stay as an earlier operator rendered them."""
    stores: StoreHealth = field(default_factory=StoreHealth)
    """What the engines say of the tier."""
    hot: StoreHealth = field(default_factory=StoreHealth)
    """What they say of their HOT pages."""
    rotation: Rotation = field(default_factory=Rotation)
    """How far a rotation of passwords is."""
    transfers: Transfers | None = None
    """How KV that goes from prefill to decode arrives; None: none goes."""
    vitals: Vitals = field(default_factory=Vitals)
    """What is told of engines that are ready and not well."""
    tuned: Tuned = field(default_factory=Tuned)
    """What the control loop knows."""
    tier: TierHealth = field(default_factory=TierHealth)
    """What looks at its instances have found."""
    full: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Instances of the tier that must not be replaced yet, with the reason."""

    @property
    def complete(self) -> bool:
        """Whether all that could be written is written: pods may follow it."""
        return not (self.applied.troubles or self.applied.retry)


class Acting:
    """Brings the children of KVServings in line with their plans."""

    def __init__(
        self, client: ApiClient, defaults: Defaults, *, tell: Teller | None = None
    ) -> None:
        """`tell` writes an event at once, before what it tells of is done."""
        self._tell = tell
        self._children = Children(client)
        self._defaults = defaults
        self._memory = Memory(defaults)

    def planned(self, live: Manifest) -> Plan | Refusal:
        """The plan of a stored object, or why it has none."""
        return self._memory.planned(live)

    async def __call__(
        self,
        live: Manifest,
        planned: Plan | Refusal,
        observed: Observed,
        served: Collection[Resource],
    ) -> Outcome:
        """Write what the plan asks for; under a refusal keep up what was accepted before."""
        if observed.unreadable:
            return Outcome(observed=observed, applied=Applied(troubles=_unread(observed)))
        if isinstance(planned, Refusal):
            return await self._keep_up(live, observed, served)
        stored = observed.child(paths.SECRETS, planned.names.auth)
        auth = auth_from(stored, rotation=request_of(live))
        children = self._memory.wanted(live, planned, observed, auth)
        manifests, absent = by_api(children.manifests, served)
        comparison = await self._children.compare(observed, manifests)
        if comparison.taken:
            # Nothing is begun beside them: what is made now might read what is not ours.
            return Outcome(observed=observed, applied=_taken(comparison), absent=absent)
        if planned.suspended:
            pending = comparison.labels
            return Outcome(observed=observed, applied=Applied(), pending=pending, absent=absent)
        checked = await self._children.check(comparison)
        if checked.troubles or checked.retry:
            return await self._refused_by_server(live, observed, served, checked)
        for event in losses_of(live, planned, comparison, checked):
            if self._tell is not None:
                await self._tell(observed.key, observed.uid, event)
        applied = await self._write(comparison, observed.key)
        seen = _updated(observed, applied.written)
        return Outcome(observed=seen, applied=applied, absent=absent, held=children.held)

    async def _refused_by_server(
        self,
        live: Manifest,
        observed: Observed,
        served: Collection[Resource],
        checked: Applied,
    ) -> Outcome:
        failed = replace(checked, written=())
        if not any(t.reason is Reason.REJECTED_BY_SERVER for t in checked.troubles):
            return Outcome(observed=observed, applied=failed)
        kept = await self._keep_up(live, observed, served)
        applied = replace(
            kept.applied,
            troubles=failed.troubles + kept.applied.troubles,
            retry=failed.retry + kept.applied.retry,
        )
        return replace(kept, applied=applied)

    async def _keep_up(
        self, live: Manifest, observed: Observed, served: Collection[Resource]
    ) -> Outcome:
        """Repair what was last accepted. Nothing new comes of it: no rollout, no other spec."""
        nothing = Outcome(observed=observed, applied=Applied())
        children = self._accepted(live, observed)
        if children is None or live["spec"].get("suspend"):
            return nothing
        manifests, _ = by_api(children.manifests, served)
        comparison = await self._children.compare(observed, manifests)
        if comparison.taken:
            return replace(nothing, applied=_taken(comparison))
        checked = await self._children.check(comparison)
        if checked.troubles or checked.retry:
            return replace(nothing, applied=replace(checked, written=()))
        applied = await self._write(comparison, observed.key)
        return replace(nothing, observed=_updated(observed, applied.written), applied=applied)

    def _accepted(self, live: Manifest, observed: Observed) -> Wanted | None:
        name = live["metadata"]["name"]
        auth = auth_from(observed.child(paths.SECRETS, child_names(name).auth))
        return last_good(live, trusted_record(observed, name, auth), auth, self._defaults)

    async def _write(self, comparison: Comparison, key: Key) -> Applied:
        applied = await self._children.write(comparison)
        if applied.written or applied.removed:
            written, removed = len(applied.written), len(applied.removed)
            logger.info("%s/%s: children written: %d, removed: %d", *key, written, removed)
        return applied


def _taken(comparison: Comparison) -> Applied:
    return Applied(troubles=comparison.conflicts, waiting=comparison.inherited)


def _unread(observed: Observed) -> tuple[Trouble, ...]:
    kinds = ", ".join(sorted(resource.plural for resource in observed.unreadable))
    first = next(iter(observed.unreadable.values()))
    return (
        Trouble(
            reason=Reason.READ_FAILED,
            message=f"the operator may not read {kinds}: {first}",
            stalled=True,
        ),
    )


def _updated(observed: Observed, written: Collection[Manifest]) -> Observed:
    """What was read, with the objects that were written since in their new state."""
    children = {kind: list(manifests) for kind, manifests in observed.children.items()}
    for manifest in written:
        siblings = children.setdefault(resource_of(manifest), [])
        name = manifest["metadata"]["name"]
        siblings[:] = [m for m in siblings if m["metadata"]["name"] != name] + [manifest]
    return replace(observed, children={kind: tuple(ms) for kind, ms in children.items()})
