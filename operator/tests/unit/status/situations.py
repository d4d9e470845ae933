"""Builders of situations: what a pass may know when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kvserving_operator.api.conditions import Condition, ConditionType, Reason, find
from kvserving_operator.api.v1alpha1 import KVServingStatus
from kvserving_operator.engines.base import Role
from kvserving_operator.engines.faults import Fault
from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.pods import Problem
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.status import Situation, Trouble
from tests.unit.stack import SPLIT, TIER, planned

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
PLAN: Plan = planned({**SPLIT, **TIER})


def role(**changes: Any) -> RoleHealth:
    """A role with two ready replicas of the current revision."""
    healthy = RoleHealth(
        workload="StatefulSet x-decode",
        exists=True,
        observed=True,
        desired=2,
        replicas=2,
        ready=2,
        updated=2,
        current=2,
        draining=0,
        revision="r1",
        pods=(),
        problem=None,
        problems=0,
    )
    return replace(healthy, **changes)


STARTING = role(replicas=2, ready=0, updated=2, current=0)
ROLLING = role(updated=1, current=1)
CRASHING = replace(
    STARTING,
    problem=Problem(reason=Reason.CRASHING, pod="x-0", message="pod x-0 keeps ending"),
    problems=3,
)


def roles(**changes: RoleHealth | None) -> dict[Role, RoleHealth | None]:
    """All four roles, healthy where nothing else is said."""
    found: dict[Role, RoleHealth | None] = {r: role() for r in Role}
    return found | {Role(name): health for name, health in changes.items()}


def situation(healths: Mapping[Role, RoleHealth | None] | None = None, **changes: Any) -> Situation:
    """A healthy object at generation 1 whose status was never written."""
    made = Situation(
        name="x",
        generation=1,
        suspended=False,
        previous=KVServingStatus(),
        outcome=PLAN,
        roles=roles() if healths is None else healths,
    )
    return replace(made, **changes)


def refusal(*reasons: Reason) -> Refusal:
    """A refusal with one fault a reason."""
    return Refusal(
        faults=tuple(
            Fault(field=f"spec.f{i}", what="is wrong", remedy="change it", reason=reason)
            for i, reason in enumerate(reasons)
        )
    )


def trouble(reason: Reason, *, stalled: bool) -> Trouble:
    return Trouble(reason=reason, message=f"{reason} happened", stalled=stalled)


def get(status: KVServingStatus, type_: ConditionType) -> Condition:
    found = find(status.conditions, type_)
    assert found is not None, f"no condition {type_}"
    return found
