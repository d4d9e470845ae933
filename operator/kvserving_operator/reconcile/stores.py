"""Asks engines that carry a store, or GraniKV, how it is, in a pass that needs to know."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from kvserving_operator.kube import paths
from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.hot import read_hot
from kvserving_operator.observe.store import StoreHealth, read_stores
from kvserving_operator.plan.model import Plan, Refusal, RolePlan
from kvserving_operator.reconcile.auth import auth_from


async def store_health(
    agents: Agents | None, planned: Plan | Refusal, observed: Observed
) -> StoreHealth:
    """The stores of the ready pods of the role that carries them; nothing without one."""
    carrier = next((role for role in _roles(planned) if role.promises), None)
    found = await _asked(agents, planned, observed, carrier)
    if carrier is None or found is None:
        return StoreHealth()
    return read_stores(carrier.promises, found.answers, outdated=found.outdated)


async def hot_health(
    agents: Agents | None, planned: Plan | Refusal, observed: Observed
) -> StoreHealth:
    """GraniKV in the ready pods of the role that should have it; nothing without one."""
    decoder = next((role for role in _roles(planned) if role.launch.hot), None)
    found = await _asked(agents, planned, observed, decoder)
    return StoreHealth() if found is None else read_hot(found.answers, outdated=found.outdated)


def _roles(planned: Plan | Refusal) -> tuple[RolePlan, ...]:
    return planned.roles if isinstance(planned, Plan) else ()


@dataclass(frozen=True, slots=True)
class _Found:
    answers: Mapping[str, EngineFacts | None]
    outdated: Set[str]
    """Pods of an earlier revision."""


async def _asked(
    agents: Agents | None, planned: Plan | Refusal, observed: Observed, role: RolePlan | None
) -> _Found | None:
    """What the agents of a role's ready pods say; None where nobody can be asked."""
    if agents is None or role is None or not isinstance(planned, Plan):
        return None
    secret = observed.child(paths.SECRETS, planned.names.auth)
    if secret is None:
        return None
    workload = observed.child(paths.STATEFULSETS, role.name)
    pods = observed.pods_of(role.role.value)
    health = read_workload(workload, pods, label=role.name, desired=role.replicas)
    # The workload's own pods alone: the token is not for whoever wears their labels.
    asked = {pod.name: pod for pod in health.pods if pod.ready}
    outdated = {
        name
        for name, pod in asked.items()
        if health.exists and not (health.observed and pod.revision == health.revision)
    }
    ready = [pod for pod in pods if pod["metadata"]["name"] in asked]
    answers = await agents.facts(ready, auth_from(secret).agent_token)
    return _Found(answers, outdated)
