"""RemoteTierReady and ``status.tier``: pods, looks at their instances, what engines say. Pure."""

from collections.abc import Sequence
from typing import Final

from kvserving_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    condition,
    find,
)
from kvserving_operator.api.v1alpha1 import TierStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.observe.store import StoreFault
from kvserving_operator.observe.tier_health import TierFault
from kvserving_operator.status.situation import Situation

BESIDE: Final = "; beside that "
"""Between what engines have and what instances have, in one message."""
_TYPE = ConditionType.REMOTE_TIER_READY
_NOT_PODS = frozenset({Reason.TIER_AUTH_FAILED, Reason.TIER_CERTIFICATE_REFUSED})
"""What explains that pods are not ready, better than that they are not."""
_LOOKS = _NOT_PODS | {
    Reason.TIER_REFUSES_WRITES,
    Reason.TIER_SECRET_MISSING,
    Reason.TIER_UNREACHABLE,
}
"""What only looks can say."""
_STANDING = frozenset({Reason.KV_ROUND_TRIP_MISMATCH, Reason.ATTENTION_MISMATCH})
"""What keeps engines from the tier until somebody changes the spec: its instances may come and go
meanwhile, which would be no help. So it is told first, and of the instances beside it."""


def tier_condition(situation: Situation, pods: Condition | None) -> Condition | None:
    """RemoteTierReady; None without a tier. `pods`: how those of a managed one are."""
    plan = situation.plan
    if pods is None and not (plan is not None and plan.external_instances):
        return None
    return _as_engines_see_it(_as_looked_at(situation, pods), situation.store_faults)


def _as_looked_at(situation: Situation, pods: Condition | None) -> Condition:
    tier = situation.tier
    if pods is not None and pods.status is not ConditionStatus.TRUE:
        explained = [fault for fault in tier.faults if fault.reason in _NOT_PODS]
        waits = pods.reason in {Reason.REPLICAS_NOT_READY, Reason.STARTING}
        return _said(explained[0]) if explained and waits else pods
    if tier.faults:
        return _said(tier.faults[0])
    if pods is not None and not tier.asked:
        return pods
    if not tier.seen:
        return _unseen(situation)
    if tier.concerns:
        return _said(tier.concerns[0], ConditionStatus.TRUE)
    return pods or _answering(tier.good)


def _answering(count: int) -> Condition:
    plural = "s" if count != 1 else ""
    return condition(
        _TYPE,
        status=ConditionStatus.TRUE,
        reason=Reason.INSTANCES_ANSWER,
        message=f"{count} instance{plural} store a value and give it back",
    )


def _said(fault: TierFault, status: ConditionStatus = ConditionStatus.FALSE) -> Condition:
    return condition(_TYPE, status=status, reason=fault.reason, message=fault.message)


def _unseen(situation: Situation) -> Condition:
    """Before the first look has ended: what was said last, so that a restart changes nothing."""
    before = find(situation.previous.conditions, _TYPE)
    if before is not None and _is_of_looks(before, situation.generation):
        # As it stands: an operator of another version may have had a reason that is unknown here.
        return before
    message = "not every instance was looked at yet"
    return condition(
        _TYPE, status=ConditionStatus.UNKNOWN, reason=Reason.NOT_MEASURED, message=message
    )


def _is_of_looks(before: Condition, generation: int) -> bool:
    looked = before.status is ConditionStatus.TRUE or before.reason in _LOOKS
    return looked and before.observed_generation == generation


def _as_engines_see_it(found: Condition, faults: Sequence[StoreFault]) -> Condition:
    """The tier's condition, False where it is there and engines cannot use it."""
    standing = [fault for fault in faults if fault.reason in _STANDING]
    if found.status is ConditionStatus.FALSE:
        return _beside(found, told(found, found.status, standing)) if standing else found
    if not faults:
        return found
    faults = standing + [fault for fault in faults if fault not in standing]
    known = faults[0].reason is not Reason.AGENT_UNREACHABLE
    return told(found, ConditionStatus.FALSE if known else ConditionStatus.UNKNOWN, faults)


def _beside(found: Condition, first: Condition) -> Condition:
    """What comes first, with what is wrong beside it."""
    return condition(
        ConditionType(first.type),
        status=first.status,
        reason=Reason(first.reason),
        message=f"{first.message}{BESIDE}{found.message}",
    )


def told(found: Condition, status: ConditionStatus, faults: Sequence[StoreFault]) -> Condition:
    """The condition as engines see it: the first fault, and how many pods more have one."""
    others = len(faults) - 1
    more = f" (and {others} more pod{'s' if others > 1 else ''})" if others else ""
    return condition(
        ConditionType(found.type),
        status=status,
        reason=faults[0].reason,
        message=faults[0].message + more,
    )


def tier_status(situation: Situation) -> TierStatus | None:
    """``status.tier``; None without a tier."""
    plan, tier = situation.plan, situation.tier
    previous = situation.previous.tier or TierStatus()
    if plan is not None and plan.external_instances:
        count, epoch = plan.external_instances, plan.tier_epoch
        if not tier.seen and previous.summary is None:
            return previous.model_copy(update={"instances": count, "epoch": epoch})
        # Of several at one address the last look may have seen more than there are.
        return _figures(count, min(count, tier.good if tier.seen else previous.ready), epoch)
    if Role.VALKEY not in situation.roles:
        return None
    health = situation.roles[Role.VALKEY]
    ready = previous.ready if health is None else health.ready
    if tier.asked:
        ready = min(ready, tier.good if tier.seen else previous.ready)
    if plan is not None and plan.tier is not None:
        return _figures(plan.tier.instances, ready, plan.tier.epoch)
    return _figures(previous.instances, ready, previous.epoch)


def _figures(instances: int, ready: int, epoch: str | None) -> TierStatus:
    summary = f"{ready}/{instances}"
    return TierStatus(instances=instances, ready=ready, summary=summary, epoch=epoch)
