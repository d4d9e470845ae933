"""Asks engines that carry a store, or GraniKV, how it is, in a pass that needs to know."""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from kvserving_operator.kube import paths
from kvserving_operator.measure import EngineFacts
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.hot import read_hot
from kvserving_operator.observe.silence import Heard
from kvserving_operator.observe.store import StoreHealth, read_stores
from kvserving_operator.plan.model import Plan, Refusal, RolePlan
from kvserving_operator.reconcile.auth import auth_from
from kvserving_operator.reconcile.sources import Source


class Stores:
    """The health of stores in engines; remembers what was heard of those that fall silent."""

    def __init__(
        self, agents: Agents | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agents = agents
        self._clock = clock
        self._heard = Heard()

    async def __call__(
        self, planned: Plan | Refusal, observed: Observed, *, source: Source | None = None
    ) -> StoreHealth:
        """The stores of the ready pods of the role that carries them; nothing without one.

        `source`: who is asked; None: the agents.
        """
        carrier = next((role for role in _roles(planned) if role.promises), None)
        found = await asked(source or self._agents, planned, observed, carrier)
        if carrier is None or found is None:
            return StoreHealth()
        now = self._clock()
        self._heard = self._heard.with_answers(found.answers, found.uids, now)
        silent = self._heard.of_silent(found.answers, found.uids)
        return read_stores(
            carrier.promises,
            {**found.answers, **silent},
            outdated=found.outdated,
            lost=self._heard.lost(silent, found.uids, now),
        )


async def hot_health(
    source: Source | None, planned: Plan | Refusal, observed: Observed
) -> StoreHealth:
    """GraniKV in the ready pods of the role that should have it; nothing without one."""
    decoder = next((role for role in _roles(planned) if role.launch.hot), None)
    found = await asked(source, planned, observed, decoder)
    return StoreHealth() if found is None else read_hot(found.answers, outdated=found.outdated)


def _roles(planned: Plan | Refusal) -> tuple[RolePlan, ...]:
    return planned.roles if isinstance(planned, Plan) else ()


@dataclass(frozen=True, slots=True)
class Found:
    """What the agents of a role's ready pods said, by the names of the pods."""

    answers: Mapping[str, EngineFacts | None]
    uids: Mapping[str, str]
    outdated: Set[str]
    """Pods of an earlier revision."""


async def asked(
    source: Source | None, planned: Plan | Refusal, observed: Observed, role: RolePlan | None
) -> Found | None:
    """What is known of a role's ready pods; None where nobody can be asked."""
    if source is None or role is None or not isinstance(planned, Plan):
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
    answers = await source.facts(ready, auth_from(secret).agent_token)
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in ready}
    return Found(answers, uids, outdated)
