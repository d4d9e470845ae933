"""From a situation to the whole status. Pure: the clock is an argument.

Equal situations give equal status whatever the time is, so a settled object causes no write.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from kvserving_operator.api import meta
from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Phase,
    Reason,
    condition,
    find,
    is_true,
    merge_conditions,
)
from kvserving_operator.api.v1alpha1 import GPUStatus, KVServingStatus, RoleStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.labels import selector
from kvserving_operator.plan.model import Plan
from kvserving_operator.status.model import published
from kvserving_operator.status.roles import CONDITION_OF, SERVING_ROLES, role_conditions
from kvserving_operator.status.situation import Situation
from kvserving_operator.status.tier import tier_status
from kvserving_operator.status.transfer import transfer_conditions
from kvserving_operator.status.tuning import (
    MEASURED_CONDITIONS,
    measured_conditions,
    tuning_status,
)

_UNFINISHED = "not everything that the spec asks for is written yet; it is tried again"
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def compute(situation: Situation, *, now: datetime) -> KVServingStatus:
    """The status of a KVServing at the end of a pass."""
    roles = role_conditions(situation)
    spec_valid = _spec_valid(situation)
    ready = _ready(situation, spec_valid, roles)
    movement = _movement(situation, spec_valid)
    figures = _figures(situation)
    measured = [
        *transfer_conditions(situation.transfers, situation.previous.conditions),
        *_measured(situation, figures),
    ]
    desired = [spec_valid, *roles, *measured, ready, *movement]
    conditions = merge_conditions(
        situation.previous.conditions, desired, generation=situation.generation, now=now
    )
    return figures.model_copy(
        update={
            "observed_generation": situation.generation,
            "phase": _phase(situation, conditions),
            "conditions": conditions,
        }
    )


def _measured(situation: Situation, figures: KVServingStatus) -> list[Condition]:
    """Conditions that rest on measurements; while there are none of this pass those there were."""
    if situation.measured is not None:
        previous = situation.previous
        return list(measured_conditions(situation.measured, figures.model, previous))
    if situation.plan is not None and situation.plan.tuning is None:
        return []
    return [c for c in situation.previous.conditions if c.type in MEASURED_CONDITIONS]


def _spec_valid(situation: Situation) -> Condition:
    type_ = ConditionType.SPEC_VALID
    if situation.refusal is not None:
        faults = situation.refusal.faults
        reasons = {fault.reason for fault in faults}
        reason = reasons.pop() if len(reasons) == 1 else Reason.INVALID
        message = "; ".join(str(fault) for fault in faults)
        return condition(type_, status=_FALSE, reason=reason, message=message)
    rejected = situation.trouble(Reason.REJECTED_BY_SERVER)
    if rejected is not None:
        return condition(type_, status=_FALSE, reason=rejected.reason, message=rejected.message)
    if situation.absent:
        left_out = ", ".join(situation.absent)
        message = (
            "the spec can be served; left out, because the cluster lacks their API or does not "
            f"answer for it: {left_out}"
        )
        return condition(type_, status=_TRUE, reason=Reason.OPTIONAL_API_ABSENT, message=message)
    return condition(type_, status=_TRUE, reason=Reason.VALID, message="the spec can be served")


def _ready(situation: Situation, spec_valid: Condition, roles: Sequence[Condition]) -> Condition:
    type_ = ConditionType.READY
    if spec_valid.status is not _TRUE:
        return condition(
            type_,
            status=_FALSE,
            reason=Reason(spec_valid.reason),
            message="the spec is refused (see SpecValid); what runs was left as it is",
        )
    conflict = situation.trouble(Reason.NAME_CONFLICT)
    if conflict is not None:
        return condition(type_, status=_FALSE, reason=conflict.reason, message=conflict.message)
    failed = situation.trouble(Reason.APPLY_FAILED)
    if failed is not None and not _was_ready_at_this_generation(situation):
        # Roles that are ready are ready for the previous spec; this one is not in force.
        return condition(type_, status=_FALSE, reason=failed.reason, message=failed.message)
    if situation.unfinished and not _was_ready_at_this_generation(situation):
        reason = Reason.ROLES_NOT_READY
        return condition(type_, status=_FALSE, reason=reason, message=_UNFINISHED)
    return _ready_by_roles(roles)


def _ready_by_roles(roles: Sequence[Condition]) -> Condition:
    type_ = ConditionType.READY
    needed = {CONDITION_OF[role] for role in SERVING_ROLES}
    serving = [c for c in roles if c.type in needed]
    waiting = [c for c in serving if c.status is _FALSE]
    if waiting:
        message = "; ".join(f"{c.type}=False: {c.message}" for c in waiting)
        return condition(type_, status=_FALSE, reason=Reason.ROLES_NOT_READY, message=message)
    if any(c.status is _UNKNOWN for c in serving):
        return condition(
            type_,
            status=_UNKNOWN,
            reason=Reason.READ_FAILED,
            message="not every role could be read",
        )
    return condition(
        type_, status=_TRUE, reason=Reason.ALL_READY, message="all roles are ready to serve"
    )


def _was_ready_at_this_generation(situation: Situation) -> bool:
    previous = find(situation.previous.conditions, ConditionType.READY)
    return (
        previous is not None
        and previous.status is _TRUE
        and previous.observed_generation == situation.generation
    )


def _movement(situation: Situation, spec_valid: Condition) -> list[Condition]:
    """Progressing (True is good) and the kstatus pair Reconciling, Stalled."""
    stuck = next((t for t in situation.troubles if t.stalled), None)
    if spec_valid.status is not _TRUE:
        reason, message = Reason(spec_valid.reason), spec_valid.message
        return _moves(progressing=False, reconciling=False, stalled=True, why=(reason, message))
    if stuck is not None:
        why = (stuck.reason, stuck.message)
        return _moves(progressing=False, reconciling=False, stalled=True, why=why)
    if situation.suspended:
        left = f"; differ from the spec: {', '.join(situation.pending)}" * bool(situation.pending)
        why = (Reason.SUSPENDED, f"suspended: nothing is changed{left}")
        return _moves(progressing=True, reconciling=False, stalled=False, why=why)
    if situation.troubles:
        why = (situation.troubles[0].reason, situation.troubles[0].message)
        return _moves(progressing=False, reconciling=True, stalled=False, why=why)
    return _work_in_progress(situation)


def _work_in_progress(situation: Situation) -> list[Condition]:
    healths = {role: health for role, health in situation.roles.items() if health is not None}
    broken = [h for h in healths.values() if h.problem is not None]
    if broken:
        problem = broken[0].problem
        why = (Reason.NO_PROGRESS, problem.message if problem else "")
        return _moves(progressing=False, reconciling=True, stalled=False, why=why)
    if situation.unfinished:
        why = (Reason.CREATING, _UNFINISHED)
        return _moves(progressing=True, reconciling=True, stalled=False, why=why)
    moving = {role: h for role, h in healths.items() if not h.settled}
    rotation = f"; {situation.rotation}" if situation.rotation else ""
    if not moving and rotation:
        why = (Reason.ROTATING_PASSWORDS, situation.rotation)
        return _moves(progressing=True, reconciling=True, stalled=False, why=why)
    if not moving:
        why = _at_rest(situation)
        return _moves(progressing=True, reconciling=False, stalled=False, why=why)
    names = ", ".join(sorted(role.value for role in moving))
    if situation.paused and all(_held(health) for health in moving.values()):
        why = (Reason.ROLLOUT_PAUSED, f"rollout paused; older revision: {names}{rotation}")
        return _moves(progressing=True, reconciling=False, stalled=False, why=why)
    message = f"waiting for {names}{_kept(situation)}{rotation}"
    why = (_activity(moving.values()), message)
    return _moves(progressing=True, reconciling=True, stalled=False, why=why)


def _kept(situation: Situation) -> str:
    """Which instance of the tier keeps its pod for now, and why: the first of them."""
    for name, why in sorted(situation.kept.items()):
        others = len(situation.kept) - 1
        more = f" (and {others} more instance{'s' if others > 1 else ''})" if others else ""
        return f": {name} keeps its pod, as it {why}{more}"
    return ""


def _at_rest(situation: Situation) -> tuple[Reason, str]:
    if not situation.held:
        return Reason.SETTLED, "everything is as the spec wants it"
    return (
        Reason.TEMPLATES_HELD,
        f"everything is as the spec wants it; {', '.join(situation.held)} as an earlier operator "
        f"rendered it, until the spec changes it or annotation {meta.ANNOTATION_ADOPT} does",
    )


def _held(health: RoleHealth) -> bool:
    return health.serves(any_revision=True) and not health.draining


def _activity(healths: Collection[RoleHealth]) -> Reason:
    if any(health.outdated for health in healths):
        return Reason.ROLLING_OUT
    if all(health.serves() for health in healths):
        return Reason.DRAINING
    return Reason.CREATING


def _moves(
    *, progressing: bool, reconciling: bool, stalled: bool, why: tuple[Reason, str]
) -> list[Condition]:
    reason, message = why
    states = (
        (ConditionType.PROGRESSING, progressing),
        (ConditionType.RECONCILING, reconciling),
        (ConditionType.STALLED, stalled),
    )
    return [
        condition(type_, status=_TRUE if holds else _FALSE, reason=reason, message=message)
        for type_, holds in states
    ]


def _phase(situation: Situation, conditions: Sequence[Condition]) -> Phase:
    if not is_true(conditions, ConditionType.SPEC_VALID):
        return Phase.INVALID
    if situation.suspended:
        return Phase.SUSPENDED
    if is_true(conditions, ConditionType.READY):
        return Phase.READY
    if not is_true(conditions, ConditionType.PROGRESSING):
        return Phase.DEGRADED
    if any(health is not None and health.exists for health in situation.roles.values()):
        return Phase.PROGRESSING
    return Phase.PENDING


def _figures(situation: Situation) -> KVServingStatus:
    """The numbers. What only a plan can tell stays as it was while the spec is refused."""
    previous, plan = situation.previous, situation.plan
    figures: dict[str, object] = {
        "prefill": _role_status(situation, Role.PREFILL),
        "decode": _role_status(situation, Role.DECODE),
        "tier": tier_status(situation),
    }
    if plan is not None:
        figures["kv_shards"] = plan.kv_shards
        figures["gpus"] = GPUStatus(requested=plan.gpus, budget=plan.gpu_budget)
        figures |= _measurements(situation, plan)
    return previous.model_copy(update=figures)


def _measurements(situation: Situation, plan: Plan) -> dict[str, object]:
    previous, measured = situation.previous, situation.measured
    if measured is None:
        return {"model": None, "tuning": None} if plan.tuning is None else {}
    model = None
    if measured.tier:
        model = published(previous.model, measured.knowledge, measured.now, plan.pool)
    return {"model": model, "tuning": tuning_status(measured, previous.tuning)}


def _role_status(situation: Situation, role: Role) -> RoleStatus | None:
    if role not in situation.roles:
        return None
    health = situation.roles[role]
    if health is None:
        previous = situation.previous
        return previous.prefill if role is Role.PREFILL else previous.decode
    return RoleStatus(
        replicas=health.replicas,
        ready=health.ready,
        updated=health.updated,
        draining=health.draining,
        summary=f"{health.ready}/{health.desired}",
        revision=health.revision,
        selector=selector(situation.name, role.value),
    )
