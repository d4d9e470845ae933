"""How many: replicas, accelerators, and what a rollout may take away. Pure."""

from collections.abc import Iterable

from kvserving_operator.engines.base import EngineRoleSpec, Topology
from kvserving_operator.plan.model import RolePlan


def replicas(role_spec: EngineRoleSpec) -> int:
    """Replicas of a role: what is written, else 1."""
    return 1 if role_spec.replicas is None else role_spec.replicas


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
