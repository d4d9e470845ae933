"""One step of a rotation of the tier's passwords at the end of a pass (`plan.rotation`).

A step is one write of the Secret, by resourceVersion: who has read an older one writes nothing. All
else follows from the Secret in the next pass: the ACL file, the engines' new revision.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.instances import addresses_of
from kvserving_operator.observe.labels import is_ours, selector
from kvserving_operator.observe.logins import read_logins
from kvserving_operator.observe.silences import Silences
from kvserving_operator.observe.tier_client import Address
from kvserving_operator.plan.model import (
    AuthMaterial,
    Manifest,
    Plan,
    Refusal,
    RolePlan,
    SpareUse,
    TierPlan,
)
from kvserving_operator.plan.rotation import (
    EnginesAtWork,
    InstanceLogins,
    LoginAnswer,
    next_step,
    request_of,
    unsettled,
)
from kvserving_operator.reconcile.acceptance import owner_of
from kvserving_operator.reconcile.acting import Outcome
from kvserving_operator.reconcile.auth import auth_from, made
from kvserving_operator.reconcile.changes import Rotation
from kvserving_operator.render.config import engine_config_hash
from kvserving_operator.render.metadata import seal
from kvserving_operator.render.secret import auth_secret
from kvserving_operator.status import Event

logger = logging.getLogger(__name__)

_SOONEST: Final = 2.0
_LATEST: Final = 30.0
"""Seconds between looks at instances that have not followed yet: the longer, the more seldom."""
_NAMED: Final = 3
_PROBE: Final = 10.0
"""Seconds that one look at an instance may take."""
_REMEMBERED: Final = 5000


class Rotating:
    """Takes rotations on, one step a pass."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        hung: Silences[str] | None = None,
    ) -> None:
        """`hung`: instances that are left alone, by address."""
        self._client = client
        self._clock = clock
        self._hung = hung or Silences[str](clock, probe=_PROBE)
        # By uid: since when instances are waited for. Of use for the pace of looks alone.
        self._since: OrderedDict[str, float] = OrderedDict()

    async def __call__(self, live: Manifest, plan: Plan | Refusal, outcome: Outcome) -> Rotation:
        """The next step where it is due; the Secret is all that is remembered of it."""
        if isinstance(plan, Refusal):
            return Rotation()
        uid = live["metadata"]["uid"]
        secret = outcome.observed.child(paths.SECRETS, plan.names.auth)
        tier, request = plan.tier, request_of(live)
        if tier is None or secret is None:
            return Rotation()
        auth = auth_from(secret, rotation=request)
        if auth.spare is None and request in {"", auth.rotation}:
            self._since.pop(uid, None)
            return Rotation()
        if plan.suspended or not outcome.complete:
            return Rotation(message=_waits(auth, "nothing is changed at this moment"))
        instances = await self._instances(plan, tier, outcome.observed, auth)
        engines = await self._engines(plan, outcome.observed, auth)
        following = next_step(
            auth, request=request, instances=instances, engines=engines, make=made
        )
        if following is auth:
            look = self._next_look(uid) if instances else None
            message = _progress(auth, instances, engines) + _held(plan, engines, outcome.held)
            return Rotation(message=message, look_again=look)
        self._since.pop(uid, None)
        return await self._store(live, plan, secret, following)

    async def _store(
        self, live: Manifest, plan: Plan, secret: Manifest, following: AuthMaterial
    ) -> Rotation:
        manifest = seal(auth_secret(plan, following), owner_of(live))
        read = {field: secret["metadata"][field] for field in ("uid", "resourceVersion")}
        try:
            await self._client.apply({**manifest, "metadata": manifest["metadata"] | read})
        except errors.RequestError as error:
            return Rotation(message=_waits(following, "to be written"), retry=(str(error),))
        told = _TOLD[following.spare.use if following.spare else None]
        logger.info("%s/%s: %s", plan.namespace, plan.name, told.message)
        return Rotation(message=_progress(following, (), None), events=(told,), look_again=0.0)

    async def _instances(
        self, plan: Plan, tier: TierPlan, observed: Observed, auth: AuthMaterial
    ) -> tuple[InstanceLogins, ...]:
        """What all instances answer, where that decides anything."""
        if auth.spare is None or auth.spare.use is SpareUse.PREVIOUS:
            return ()
        found = await addresses_of(self._client, plan, tier, observed)
        answers = (self._logins(name, address, auth) for name, address in found.items())
        return tuple(await asyncio.gather(*answers))

    async def _logins(
        self, name: str, address: Address | None, auth: AuthMaterial
    ) -> InstanceLogins:
        """What an instance answers; of one that hung a moment ago nothing is known."""
        nothing = InstanceLogins(name=name)
        if address is None:
            return nothing
        return await self._hung.ask(
            address,
            lambda: read_logins(name, address, auth),
            wrong=lambda found: "hangs" if found.in_use is LoginAnswer.UNKNOWN else None,
            alone=lambda _: nothing,
        )

    async def _engines(self, plan: Plan, observed: Observed, auth: AuthMaterial) -> EnginesAtWork:
        """The engines, by a fresh read, where they decide anything."""
        if auth.spare is None or auth.spare.use is not SpareUse.PREVIOUS:
            return EnginesAtWork(outdated=(), known=False)
        roles = [role for role in plan.roles if role.reads_auth]
        looks = await asyncio.gather(*(self._role(plan, role, observed, auth) for role in roles))
        return EnginesAtWork(
            outdated=tuple(name for look in looks for name in look.outdated),
            known=all(look.known for look in looks),
        )

    async def _role(
        self, plan: Plan, role: RolePlan, observed: Observed, auth: AuthMaterial
    ) -> EnginesAtWork:
        workload, pods = await asyncio.gather(
            self._client.get(paths.STATEFULSETS, plan.namespace, role.name),
            self._client.list(
                paths.PODS,
                plan.namespace,
                selector=selector(plan.name, role.role.value),
                fresh=True,
            ),
        )
        if workload is None or not is_ours(workload, observed.uid):
            return EnginesAtWork(outdated=(), known=False)
        health = read_workload(workload, pods, label=role.name, desired=role.replicas)
        annotations = workload["spec"]["template"]["metadata"].get("annotations") or {}
        wanted = engine_config_hash(plan, role, auth)
        follows = annotations.get(meta.ANNOTATION_CONFIG_HASH) == wanted
        outdated = (
            pod.name for pod in health.pods if not pod.finished and pod.revision != health.revision
        )
        return EnginesAtWork(outdated=tuple(outdated), known=health.observed and follows)

    def _next_look(self, uid: str) -> float:
        now = self._clock()
        waited = now - self._since.setdefault(uid, now)
        # Objects that went in the middle of a rotation: nothing tells of them here.
        while len(self._since) > _REMEMBERED:
            self._since.popitem(last=False)
        return min(_LATEST, max(_SOONEST, waited / 4))


def _event(message: str, reason: Reason = Reason.ROTATING_PASSWORDS) -> Event:
    return Event(type="Normal", reason=reason, message=message)


_TOLD: Final = {
    SpareUse.NEXT: _event("new passwords are in the Secret; every instance shall take both"),
    SpareUse.PREVIOUS: _event("every instance takes both passwords; engines are replaced"),
    SpareUse.RETIRED: _event("no engine uses the old passwords; instances shall refuse them"),
    None: _event(
        "the passwords of the tier's users were changed; every instance refuses the old ones",
        Reason.PASSWORDS_ROTATED,
    ),
}


def _waits(auth: AuthMaterial, why: str) -> str:
    return f"passwords are rotated, {_step(auth)}: {why}"


def _step(auth: AuthMaterial) -> str:
    steps = list(SpareUse)
    number = steps.index(auth.spare.use) + 1 if auth.spare else 0
    return f"step {number} of {len(steps)}"


def _progress(
    auth: AuthMaterial, instances: Sequence[InstanceLogins], engines: EnginesAtWork | None
) -> str:
    if auth.spare is None:
        return ""
    waiting = _names(unsettled(auth, instances))
    if auth.spare.use is SpareUse.NEXT:
        return _waits(auth, f"instances learn the new ones{waiting}")
    if auth.spare.use is SpareUse.RETIRED:
        return _waits(auth, f"instances forget the old ones{waiting}")
    old = _names(engines.outdated if engines else ())
    return _waits(auth, f"engines with the old ones are replaced{old}")


def _held(plan: Plan, engines: EnginesAtWork, held: Sequence[str]) -> str:
    """That engines are waited for which are not replaced, as their templates stay as they are."""
    if engines.known or engines.outdated:
        return ""
    found = [f"StatefulSet {role.name}" for role in plan.roles if role.reads_auth]
    names = ", ".join(name for name in found if name in held)
    if not names:
        return ""
    return (
        f"; {names} as an earlier operator rendered it does not say which ones it uses: annotation "
        f"{meta.ANNOTATION_ADOPT} with a new value replaces its engines"
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f", not yet: {', '.join(names[:_NAMED])}{more}" if names else ""
