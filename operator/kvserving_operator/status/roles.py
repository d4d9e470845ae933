"""The condition of each role: PrefillReady, DecodeReady, RouterReady, RemoteTierReady. Pure."""

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
    find,
)
from kvserving_operator.engines.base import Role
from kvserving_operator.measure.vitals import Sign
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.status.situation import Situation
from kvserving_operator.status.tier import tier_condition, told
from kvserving_operator.status.vitals import faults_of, stands

CONDITION_OF = {
    Role.PREFILL: ConditionType.PREFILL_READY,
    Role.DECODE: ConditionType.DECODE_READY,
    Role.ROUTER: ConditionType.ROUTER_READY,
    Role.VALKEY: ConditionType.REMOTE_TIER_READY,
}
ENGINES = (Role.PREFILL, Role.DECODE)
SERVING_ROLES = (Role.PREFILL, Role.DECODE, Role.ROUTER)
"""Roles on which Ready depends. The tier is a cache: without it requests are slower, not wrong."""


def role_conditions(situation: Situation) -> list[Condition]:
    """One condition for each role that the situation holds."""
    found = {
        role: _role_condition(type_, situation.roles[role], paused=situation.paused)
        for role, type_ in CONDITION_OF.items()
        if role in situation.roles
    }
    tier = tier_condition(situation, found.pop(Role.VALKEY, None))
    for role in ENGINES:
        if role in found and found[role].status is ConditionStatus.TRUE:
            found[role] = _as_engines_are(situation, role, found[role])
    return [*found.values(), *([tier] if tier is not None else [])]


def _as_engines_are(situation: Situation, role: Role, ready: Condition) -> Condition:
    """The condition of a role that is ready, with what is not as it should be in its engines."""
    vitals = situation.vitals
    kinds = (
        tuple(faults_of(vitals, role, Sign.HUNG)),
        # Engines without the HOT pages that were asked for serve all the same.
        situation.hot_faults if role is Role.DECODE else (),
        tuple(faults_of(vitals, role, Sign.RESTARTS)),
    )
    faults = next((found for found in kinds if found), None)
    if faults is not None:
        return told(ready, ConditionStatus.TRUE, faults)
    before = find(situation.previous.conditions, CONDITION_OF[role])
    return before if before and stands(before, vitals, situation.generation) else ready


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
