"""Replace pods of an old revision: the deleting half of `updateStrategy: OnDelete`.

The decision is `observe.rollout`'s. It is made on a fresh read of the StatefulSet and its pods: the
watch cache may still show a pod ready that was deleted a moment ago, and one decision too many
would take away more replicas than allowed.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.client import ApiClient
from kvserving_operator.kube.paths import Key
from kvserving_operator.observe.health import RoleHealth, read_workload
from kvserving_operator.observe.labels import is_ours, selector
from kvserving_operator.observe.rollout import next_replacement
from kvserving_operator.plan.model import Plan

logger = logging.getLogger(__name__)

_TIER_BUDGET = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    role: Role
    workload: str
    replicas: int
    budget: int


async def replace_outdated(
    client: ApiClient,
    key: Key,
    plan: Plan,
    healths: Mapping[Role, RoleHealth | None],
    *,
    uid: str,
    spared: Collection[str] = (),
) -> tuple[str, ...]:
    """Delete at most one pod a role that must be replaced now; returns the names of the pods.

    While a pod of a role is `spared` none of that role is deleted: it has its turn.
    """
    if plan.rollout_paused:
        return ()
    deleted: list[str] = []
    for target in _targets(plan):
        health = healths.get(target.role)
        if health is None or not health.observed or not health.outdated:
            continue
        if any(pod.name in spared for pod in health.pods):
            continue
        name = await _replace_one(client, key, target, uid=uid)
        if name is not None:
            deleted.append(name)
    return tuple(deleted)


def _targets(plan: Plan) -> Iterator[_Target]:
    if plan.tier is not None:
        yield _Target(
            role=Role.VALKEY,
            workload=plan.tier.name,
            replicas=plan.tier.instances,
            budget=_TIER_BUDGET,
        )
    for role in plan.roles:
        yield _Target(
            role=role.role,
            workload=role.name,
            replicas=role.replicas,
            budget=role.max_unavailable,
        )


async def _replace_one(client: ApiClient, key: Key, target: _Target, *, uid: str) -> str | None:
    workload = await client.get(paths.STATEFULSETS, key.namespace, target.workload)
    if workload is None or not is_ours(workload, uid):
        return None
    if "deletionTimestamp" in workload["metadata"]:
        return None  # nobody would make the pod again
    if (workload["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
        return None
    pods = await client.list(
        paths.PODS, key.namespace, selector=selector(key.name, target.role.value), fresh=True
    )
    health = read_workload(workload, pods, label=target.workload, desired=target.replicas)
    pod = next_replacement(health, max_unavailable=target.budget)
    if pod is None:
        return None
    if not await client.delete(paths.PODS, key.namespace, pod.name, uid=pod.uid):
        return None
    logger.info("replacing pod %s (revision %s → %s)", pod.name, pod.revision, health.revision)
    return pod.name
