"""Which roles a pass reports on, and how each of them is doing. Pure."""

from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import RoleHealth, read_workload
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.plan.naming import Names


def healths_of(
    planned: Plan | Refusal, observed: Observed, names: Names
) -> dict[Role, RoleHealth | None]:
    """Health of the roles that are wanted or, when nobody knows what is wanted, that exist."""
    workloads = (
        (Role.PREFILL, paths.STATEFULSETS, names.prefill),
        (Role.DECODE, paths.STATEFULSETS, names.decode),
        (Role.VALKEY, paths.STATEFULSETS, names.valkey),
        (Role.ROUTER, paths.DEPLOYMENTS, names.router),
    )
    wanted = _wanted(planned) if isinstance(planned, Plan) else None
    healths: dict[Role, RoleHealth | None] = {}
    for role, resource, name in workloads:
        workload = observed.child(resource, name)
        if (workload is None) if wanted is None else (role not in wanted):
            continue
        if resource in observed.unreadable or paths.PODS in observed.unreadable:
            healths[role] = None
            continue
        healths[role] = read_workload(
            workload,
            observed.pods_of(role.value),
            label=f"{resource.kind} {name}",
            desired=None if wanted is None else wanted[role],
        )
    return healths


def _wanted(plan: Plan) -> dict[Role, int]:
    wanted = {role.role: role.replicas for role in plan.roles}
    if plan.tier is not None:
        wanted[Role.VALKEY] = plan.tier.instances
    if plan.router is not None:
        wanted[Role.ROUTER] = plan.router.replicas
    return wanted
