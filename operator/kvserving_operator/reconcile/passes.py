"""The pass itself: the order of things, and what each outcome means for the next one."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from kvserving_operator.api import meta
from kvserving_operator.api.conditions import ConditionStatus, ConditionType, Reason, find
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.discovery import Discovery
from kvserving_operator.kube.paths import Key, Resource
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Reader, gather
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.prometheus import Prometheus
from kvserving_operator.observe.silences import Silences
from kvserving_operator.observe.tier import Tiers
from kvserving_operator.plan.model import Defaults, Manifest, Plan, Refusal
from kvserving_operator.plan.naming import child_names
from kvserving_operator.reconcile.acting import Acting, Outcome, Teller
from kvserving_operator.reconcile.changes import Applied, Rotation
from kvserving_operator.reconcile.decisions import with_decision
from kvserving_operator.reconcile.observing import Observing
from kvserving_operator.reconcile.parts import Part, Parts
from kvserving_operator.reconcile.patience import Patience
from kvserving_operator.reconcile.replacement import replace_outdated
from kvserving_operator.reconcile.reporting import news, next_pass, situation_of
from kvserving_operator.reconcile.resizing import resized
from kvserving_operator.reconcile.roles import healths_of
from kvserving_operator.reconcile.rotating import Rotating
from kvserving_operator.reconcile.tuning import Look
from kvserving_operator.status import (
    Event,
    LastWrites,
    Trouble,
    WriteDecision,
    compute,
    decide,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What the runtime must know about a finished pass."""

    gone: bool = False
    """The object does not exist any more."""
    retry: tuple[str, ...] = ()
    """Failures that ask for another pass after a backoff; empty for a complete pass."""
    requeue_after: float | None = None
    events: tuple[Event, ...] = ()
    """To be emitted now: the status that they speak about is stored."""
    look: Look | None = None
    """The look of the control loop at the engines; None: none was due."""
    failed: tuple[Part, ...] = ()
    """Parts that failed by themselves."""
    status_written: bool = False
    uid: str = ""
    generation: int | None = None
    phase: str | None = None

    @property
    def ok(self) -> bool:
        """True when the pass did all it wanted to."""
        return not self.retry


class Reconciler:
    """Runs passes; holds no state that a restart would lose anything by."""

    def __init__(
        self,
        client: ApiClient,
        reader: Reader,
        defaults: Defaults,
        *,
        agents: Agents | None = None,
        tiers: Tiers | None = None,
        tell: Teller | None = None,
        prometheus: Prometheus | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._observe = Observing(client, reader, agents=agents, tiers=tiers, prometheus=prometheus)
        self._reader = reader
        self._now = now
        self._logged: OrderedDict[tuple[str, Part], float] = OrderedDict()
        self._act = Acting(client, defaults, tell=tell)
        self._hung = Silences[str](time.monotonic, probe=10.0)
        self._rotate = Rotating(client, hung=self._hung)
        self._discovery = Discovery(client)
        self._writes = LastWrites()
        self._patience = Patience()

    async def __call__(self, key: Key) -> PassResult:
        """One pass over one object."""
        live, served = await asyncio.gather(
            self._client.get(paths.KVSERVINGS, *key), self._discovery.served()
        )
        if live is None:
            return PassResult(gone=True)
        uid = live["metadata"]["uid"]
        if "deletionTimestamp" in live["metadata"]:
            # Owner references do the rest; creating anything now would only be collected again.
            return PassResult(uid=uid)
        observed = await gather(self._reader, key, uid, optional=sorted(served, key=str))
        _raise_if_unreachable(observed.unreadable)
        if observed.silent:
            logger.warning("no answer about %s", ", ".join(sorted(map(str, observed.silent))))
        live = with_decision(live, observed, self._now().timestamp())
        planned = self._act.planned(live)
        outcome = await self._act(live, planned, observed, served - observed.silent)
        healths = healths_of(planned, outcome.observed, child_names(key.name))
        part = Parts(key, uid, self._logged)
        if isinstance(planned, Plan) and outcome.complete and not planned.suspended:
            outcome = await self._follow(part, planned, outcome, healths)
            outcome = _with_troubles(outcome, part)
        rotation = self._rotate(live, planned, outcome)
        rotated = await part(Part.ROTATION, rotation, Rotation())
        outcome = _with_troubles(replace(outcome, rotation=rotated), part)
        stored, now = _stored_status(live), self._now()
        outcome = await self._observe(part, live, planned, outcome, healths, stored=stored, now=now)
        return await self._report(live, planned, outcome, healths, part=part)

    async def _follow(
        self,
        part: Parts,
        plan: Plan,
        outcome: Outcome,
        healths: Mapping[Role, RoleHealth | None],
    ) -> Outcome:
        """Pods follow their templates, instances of the tier their memory."""
        limits = self._observe.limits(part.uid)
        resizing = resized(self._client, plan, outcome.observed, healths, limits, hung=self._hung)
        tier = healths.get(Role.VALKEY)
        # Of instances that nothing is known of none is replaced.
        names = [pod.name for pod in tier.pods] if tier is not None else []
        all_of_them = dict.fromkeys(names, "was not told what it may hold")
        full = await part(Part.RESIZING, resizing, all_of_them)
        replacing = replace_outdated(
            self._client, part.key, plan, healths, uid=part.uid, spared=full
        )
        await part(Part.REPLACING, replacing, ())
        return replace(outcome, full=full)

    async def _report(
        self,
        live: Manifest,
        planned: Plan | Refusal,
        outcome: Outcome,
        healths: Mapping[Role, RoleHealth | None],
        *,
        part: Parts,
    ) -> PassResult:
        stored, metadata = _stored_status(live), live["metadata"]
        situation = situation_of(live, planned, outcome, healths, stored)
        now = self._now()
        status = compute(situation, now=now)
        written_at = self._writes.before(metadata["uid"], _written_at(live), now)
        decision = decide(stored, status, written_at=written_at, now=now)
        left = self._patience.left(metadata["uid"], healths.values(), now)
        if left is not None and _is_settled(stored, metadata["generation"], outcome.applied):
            decision = WriteDecision(write=False, look_again=left)
        if decision.write:
            await self._store(live, status)
            self._writes.note(metadata["uid"], now)
            self._observe.told(metadata["uid"])
        return PassResult(
            retry=outcome.applied.retry + _again(outcome.applied.troubles) + outcome.rotation.retry,
            requeue_after=next_pass(outcome, decision.look_again, unseen=part.unseen),
            events=outcome.rotation.events
            + (news(stored, status, situation) if decision.write else ()),
            look=outcome.tuned.look,
            failed=tuple(part.failed),
            status_written=decision.write,
            uid=metadata["uid"],
            generation=metadata["generation"],
            phase=status.phase,
        )

    async def _store(self, live: Manifest, status: KVServingStatus) -> None:
        metadata = live["metadata"]
        await self._client.apply_status(
            {
                "apiVersion": meta.API_VERSION,
                "kind": meta.KIND,
                # With the uid, so that a successor of the same name never inherits this status.
                "metadata": {field: metadata[field] for field in ("namespace", "name", "uid")},
                "status": status.to_dict(),
            }
        )


def _with_troubles(outcome: Outcome, part: Parts) -> Outcome:
    """The outcome with what its parts could not do: told of, and tried again."""
    if not part.troubles:
        return outcome
    known = set(outcome.applied.troubles)
    new = tuple(trouble for trouble in part.troubles if trouble not in known)
    applied = replace(outcome.applied, troubles=outcome.applied.troubles + new)
    return replace(outcome, applied=applied)


def _is_settled(stored: KVServingStatus, generation: int, applied: Applied) -> bool:
    """The status is of this spec, says that nothing is under way, and this pass began nothing."""
    reconciling = find(stored.conditions, ConditionType.RECONCILING)
    busy = reconciling is not None and reconciling.status is ConditionStatus.TRUE
    began = applied.written or applied.removed or applied.troubles or applied.retry
    return stored.observed_generation == generation and not busy and not began


def _raise_if_unreachable(unreadable: Mapping[Resource, errors.RequestError]) -> None:
    for error in unreadable.values():
        if error.retryable:
            raise error


def _again(troubles: Iterable[Trouble]) -> tuple[str, ...]:
    # A taken name has its own interval, and a rejected spec waits for a new spec or the resync.
    waiting = {Reason.NAME_CONFLICT, Reason.REJECTED_BY_SERVER}
    return tuple(t.message for t in troubles if t.reason not in waiting)


def _stored_status(live: Manifest) -> KVServingStatus:
    try:
        return KVServingStatus.model_validate(live.get("status") or {})
    except ValidationError:
        # Written by an operator of another version: it is replaced as a whole.
        return KVServingStatus()


def _written_at(live: Manifest) -> datetime | None:
    """When we last changed the status, by the API server's clock; None: never."""
    entries: list[dict[str, Any]] = live["metadata"].get("managedFields") or []
    for entry in entries:
        ours = entry.get("manager") == meta.FIELD_MANAGER
        if ours and entry.get("subresource") == "status" and entry.get("time"):
            return datetime.fromisoformat(entry["time"])
    return None
