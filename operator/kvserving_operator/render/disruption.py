"""PodDisruptionBudgets. Pure."""

from kvserving_operator.engines.base import Role
from kvserving_operator.plan.labels import selector
from kvserving_operator.plan.model import Manifest, Plan
from kvserving_operator.render.metadata import metadata


def budgets(plan: Plan) -> list[Manifest]:
    """One for each workload with more than one replica.

    With a single one a budget would either wedge the drain of a node or promise nothing.
    """
    counts = [(role.name, role.role, role.replicas) for role in plan.roles]
    if plan.tier is not None:
        counts.append((plan.tier.name, Role.VALKEY, plan.tier.instances))
    if plan.router is not None:
        counts.append((plan.router.name, Role.ROUTER, plan.router.replicas))
    return [_budget(plan, name, role) for name, role, count in counts if count > 1]


def _budget(plan: Plan, name: str, role: Role) -> Manifest:
    """One pod at a time; a pod that is not healthy may always be evicted."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(plan, name, role.value),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(plan.name, role)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
