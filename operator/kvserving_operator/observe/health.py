"""How one role is doing, from its workload and its pods. Pure.

A replica counts as up to date only when the workload's controller has seen the current generation
and the pod carries the revision that this generation asks for: old pods must never pass for a
finished rollout.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvserving_operator.api.conditions import Reason
from kvserving_operator.observe.labels import is_ours
from kvserving_operator.observe.pods import PodFacts, Problem, read_pod
from kvserving_operator.plan.model import Manifest

# The first that any pod has is reported: what a person must act on comes before what may pass.
_SEVERITY = (
    Reason.IMAGE_PULL_FAILED,
    Reason.OUT_OF_MEMORY,
    Reason.CRASHING,
    Reason.UNSCHEDULABLE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHealth:
    """One role: a workload and its pods, in numbers."""

    workload: str
    """Kind and name, for messages."""
    exists: bool
    observed: bool
    """The workload's controller has seen the current generation."""
    desired: int
    replicas: int
    """Pods that exist and are not being deleted."""
    ready: int
    """Pods that take requests, of whatever revision."""
    updated: int
    """Pods of the current revision."""
    current: int
    """Pods that are ready and of the current revision."""
    draining: int
    """Pods that are being deleted."""
    revision: str | None
    pods: tuple[PodFacts, ...]
    problem: Problem | None
    problems: int
    claims: frozenset[str] = frozenset()
    """Volume claims that the workload has for each of its pods."""

    @property
    def outdated(self) -> int:
        """Pods of an older revision."""
        return self.replicas - self.updated

    def serves(self, *, any_revision: bool = False) -> bool:
        """All wanted replicas are ready, at the current revision unless that does not matter."""
        if not (self.exists and self.observed):
            return False
        return (self.ready if any_revision else self.current) >= self.desired

    @property
    def settled(self) -> bool:
        """Nothing is under way: exactly the wanted replicas, all current, none leaving."""
        return self.serves() and self.replicas == self.desired and self.draining == 0


def read_workload(
    workload: Manifest | None, pods: Iterable[Manifest], *, label: str, desired: int | None
) -> RoleHealth:
    """Health of a StatefulSet's or Deployment's role.

    `desired` is the number of replicas the plan wants; None takes the workload's own, for a spec
    that cannot be planned. `label` names the workload where it does not exist yet.
    """
    facts = tuple(
        fact
        for fact in (read_pod(pod) for pod in pods if _belongs(pod, workload))
        if not (fact.finished and _leaves_finished(workload))
    )
    spec, status = _part(workload, "spec"), _part(workload, "status")
    generation = (workload or {}).get("metadata", {}).get("generation", 0)
    observed = workload is not None and int(status.get("observedGeneration") or 0) >= generation
    revision = status.get("updateRevision")
    live = [pod for pod in facts if not pod.terminating]
    updated = _updated(workload, status, live, observed=observed)
    problems = _problems(facts)
    return RoleHealth(
        workload=label,
        exists=workload is not None,
        observed=observed,
        desired=int(spec.get("replicas") or 0) if desired is None else desired,
        replicas=len(live),
        ready=sum(pod.ready for pod in live),
        updated=len(updated),
        current=sum(pod.ready for pod in updated),
        draining=len(facts) - len(live),
        revision=revision,
        pods=facts,
        problem=problems[0] if problems else None,
        problems=len(problems),
        claims=frozenset(c["metadata"]["name"] for c in spec.get("volumeClaimTemplates") or ()),
    )


def _belongs(pod: Manifest, workload: Manifest | None) -> bool:
    # A Deployment owns its pods through ReplicaSets, which are not read: there the label decides.
    if workload is None or workload["kind"] != "StatefulSet":
        return True
    return is_ours(pod, workload["metadata"]["uid"])


def _leaves_finished(workload: Manifest | None) -> bool:
    # A StatefulSet's controller deletes a finished pod and makes it again: it is a replica that is
    # missing. A Deployment's makes another one and leaves it lying about.
    return workload is not None and workload["kind"] == "Deployment"


def _updated(
    workload: Manifest | None, status: dict[str, Any], live: list[PodFacts], *, observed: bool
) -> list[PodFacts]:
    """The pods of the revision that the current generation asks for."""
    if workload is None or not observed:
        return []
    if workload["kind"] == "StatefulSet":
        revision = status.get("updateRevision")
        return [pod for pod in live if pod.revision and pod.revision == revision]
    # Pods of a Deployment do not tell their revision. Its controller counts: while it still has
    # others than updated ones, none of the pods is known to be new.
    finished = int(status.get("updatedReplicas") or 0) >= int(status.get("replicas") or 0)
    return live if finished else []


def _problems(pods: Iterable[PodFacts]) -> Sequence[Problem]:
    found = [pod.problem for pod in pods if pod.problem is not None]
    return sorted(found, key=lambda problem: _SEVERITY.index(problem.reason))


def _part(manifest: Manifest | None, name: str) -> dict[str, Any]:
    part: dict[str, Any] = (manifest or {}).get(name) or {}
    return part
