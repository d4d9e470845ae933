"""The condition of each role: PrefillReady, DecodeReady, RouterReady, RemoteTierReady. Pure."""

from collections.abc import Sequence

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
)
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.store import StoreFault
from kvserving_operator.status.situation import Situation

CONDITION_OF = {
    Role.PREFILL: ConditionType.PREFILL_READY,
    Role.DECODE: ConditionType.DECODE_READY,
    Role.ROUTER: ConditionType.ROUTER_READY,
    Role.VALKEY: ConditionType.REMOTE_TIER_READY,
}
SERVING_ROLES = (Role.PREFILL, Role.DECODE, Role.ROUTER)
"""Roles on which Ready depends. The tier is a cache: without it requests are slower, not wrong."""


def role_conditions(situation: Situation) -> list[Condition]:
    """One condition for each role that the situation holds."""
    conditions = [
        _role_condition(type_, situation.roles[role], paused=situation.paused)
        for role, type_ in CONDITION_OF.items()
        if role in situation.roles
    ]
    if situation.plan is not None and situation.plan.external_instances:
        conditions.append(
            condition(
                ConditionType.REMOTE_TIER_READY,
                status=ConditionStatus.UNKNOWN,
                reason=Reason.NOT_MEASURED,
                message="the external tier is not looked at by this version",
            )
        )
    return [_as_engines_see_it(c, situation) for c in conditions]


def _as_engines_see_it(found: Condition, situation: Situation) -> Condition:
    """The tier's condition, False where it is there and engines cannot use it.

    Engines without the HOT pages that were asked for serve all the same: only the reason tells.
    """
    stores, hot = situation.store_faults, situation.hot_faults
    if found.type == ConditionType.REMOTE_TIER_READY and stores:
        if found.status is not ConditionStatus.FALSE:
            known = stores[0].reason is not Reason.AGENT_UNREACHABLE
            return _told(found, ConditionStatus.FALSE if known else ConditionStatus.UNKNOWN, stores)
    elif found.type == ConditionType.DECODE_READY and hot and found.status is ConditionStatus.TRUE:
        return _told(found, ConditionStatus.TRUE, hot)
    return found


def _told(found: Condition, status: ConditionStatus, faults: Sequence[StoreFault]) -> Condition:
    others = len(faults) - 1
    more = f" (and {others} more pod{'s' if others > 1 else ''})" if others else ""
    return condition(
        ConditionType(found.type),
        status=status,
        reason=faults[0].reason,
        message=faults[0].message + more,
    )


def _role_condition(type_: ConditionType, health: RoleHealth | None, *, paused: bool) -> Condition:
    if health is None:
        return condition(
            type_,
            status=ConditionStatus.UNKNOWN,
            reason=Reason.READ_FAILED,
            message="the role's objects could not be read",
        )
    if health.serves(any_revision=paused):
        reason, message = _serving(health)
        return condition(type_, status=ConditionStatus.TRUE, reason=reason, message=message)
    reason, message = _not_serving(health)
    return condition(type_, status=ConditionStatus.FALSE, reason=reason, message=message)


def _serving(health: RoleHealth) -> tuple[Reason, str]:
    if health.desired == 0:
        return Reason.SCALED_TO_ZERO, f"{health.workload} has no replicas: it serves nothing"
    old = f"; {health.outdated} of an older revision (rollout paused)" if health.outdated else ""
    return Reason.REPLICAS_READY, f"{_of(health.desired)} ready{old}"


def _not_serving(health: RoleHealth) -> tuple[Reason, str]:
    if health.problem is not None:
        others = health.problems - 1
        more = f" (and {others} more pod{'s' if others > 1 else ''})" if others else ""
        return health.problem.reason, health.problem.message + more
    if not health.exists:
        return Reason.CREATING, f"{health.workload} does not exist yet"
    if not health.observed and not health.replicas:
        return Reason.CREATING, f"{health.workload} was just created"
    if not health.observed:
        return Reason.STARTING, f"{health.workload}: its controller has not seen the change yet"
    if health.ready >= health.desired:
        return (
            Reason.ROLLING_OUT,
            f"{health.current} of {_of(health.desired)} ready at the current revision",
        )
    reason = Reason.REPLICAS_NOT_READY if health.ready else Reason.STARTING
    return reason, f"{health.ready} of {_of(health.desired)} ready"


def _of(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
