"""How many: replicas, accelerators, and what a rollout may take away. Pure."""

from collections.abc import Iterable

from kvserving_operator.api.v1alpha1 import AutomationMode, AutoscalingSpec, RoleAutoscaling
from kvserving_operator.engines.base import EngineRoleSpec, Role, Topology
from kvserving_operator.plan.model import RolePlan


def scaling(spec: AutoscalingSpec, role: Role) -> RoleAutoscaling | None:
    """The limits of a role that the autoscaler owns, else None."""
    if spec.mode is not AutomationMode.APPLY:
        return None
    return spec.prefill if role is Role.PREFILL else spec.decode


def replicas(role_spec: EngineRoleSpec, limits: RoleAutoscaling | None = None) -> int:
    """Replicas of a role: what is written, else the fewest that an autoscaler may have, else 1."""
    if role_spec.replicas is not None:
        return role_spec.replicas
    return 1 if limits is None else limits.min_replicas


def accelerators(role_spec: EngineRoleSpec, topology: Topology) -> int:
    """Accelerators of one replica; 0 for engines that run on the CPU."""
    return topology.accelerators if role_spec.accelerator.resource_name else 0


def max_unavailable(setting: int | str, count: int) -> int:
    """``rollout.maxUnavailable`` for ``count`` replicas: rounded down, but at least 1."""
    if isinstance(setting, int):
        return max(1, setting)
    return max(1, count * int(setting.removesuffix("%")) // 100)


def gpus(roles: Iterable[RolePlan]) -> int:
    """Accelerators that all replicas of all roles ask for."""
    return sum(role.replicas * role.accelerators for role in roles)
