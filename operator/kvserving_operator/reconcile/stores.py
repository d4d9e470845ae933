"""Asks the engines that carry a store how it is, in a pass that needs to know."""

from kvserving_operator.kube import paths
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.store import StoreHealth, read_stores
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile.auth import auth_from


async def store_health(
    agents: Agents | None, planned: Plan | Refusal, observed: Observed
) -> StoreHealth:
    """The stores of the ready pods of the role that carries them; nothing without one."""
    if agents is None or not isinstance(planned, Plan):
        return StoreHealth()
    carrier = next((role for role in planned.roles if role.promises), None)
    secret = observed.child(paths.SECRETS, planned.names.auth)
    if carrier is None or secret is None:
        return StoreHealth()
    workload = observed.child(paths.STATEFULSETS, carrier.name)
    pods = observed.pods_of(carrier.role.value)
    health = read_workload(workload, pods, label=carrier.name, desired=carrier.replicas)
    # The workload's own pods alone: the token is not for whoever wears their labels.
    asked = {pod.name: pod for pod in health.pods if pod.ready}
    outdated = {
        name
        for name, pod in asked.items()
        if health.exists and not (health.observed and pod.revision == health.revision)
    }
    ready = [pod for pod in pods if pod["metadata"]["name"] in asked]
    answers = await agents.facts(ready, auth_from(secret).agent_token)
    return read_stores(carrier.promises, answers, outdated=outdated)
