"""The StatefulSets of the engine roles. Pure."""

from typing import Any

from kvserving_operator.plan.labels import selector
from kvserving_operator.plan.model import Manifest, Plan, RolePlan
from kvserving_operator.render.engine_pod import engine_template
from kvserving_operator.render.metadata import metadata


def engine_statefulset(plan: Plan, role: RolePlan, config_hash: str | None) -> Manifest:
    """The StatefulSet of ``role``; ``config_hash`` stands for what its pods read at start."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(
            plan, role.name, role.role.value, labels=role.labels, annotations=role.annotations
        ),
        "spec": {
            "replicas": role.replicas,
            "serviceName": role.name,
            "selector": {"matchLabels": selector(plan.name, role.role)},
            **update_by_operator(),
            "template": engine_template(plan, role, config_hash),
        },
    }


def update_by_operator() -> dict[str, Any]:
    """Pods start side by side, and only the operator takes one away, after it was drained."""
    return {"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}
