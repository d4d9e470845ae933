"""Which pod a rollout replaces next. Pure.

StatefulSets have `updateStrategy: OnDelete`: their controller makes a pod of the new revision only
when the old one is gone, and only the operator deletes. One pod at a time: those of an old revision
that do not serve anyway go first and cost nothing; then, within the budget, those that do serve,
from the highest ordinal down. Pods of the current revision are never deleted here: an unhealthy one
is restarted by its kubelet, and replacing it would not change it.

Where the workload has got a volume claim that its pods lack, its controller cannot give it to them,
and makes no pod beyond the first that lacks it: then the lowest ordinal goes first.
"""

from kvserving_operator.observe.health import RoleHealth
from kvserving_operator.observe.pods import PodFacts


def next_replacement(health: RoleHealth, *, max_unavailable: int) -> PodFacts | None:
    """The pod to delete now, or None: nothing is old, or the budget is used up, or it is unknown.

    Unhealthy old pods are outside the budget on purpose: a revision that never became ready must
    not block the revision that repairs it.
    """
    if not (health.exists and health.observed and health.revision):
        return None
    old = [
        pod for pod in health.pods if not pod.terminating and pod.revision not in {health.revision}
    ]
    unavailable = max(0, health.desired - health.ready)
    if without_claim := [pod for pod in old if health.claims - pod.claims]:
        first = min(without_claim, key=_ordinal)
        within = unavailable - _missing_beyond(health, first) < max_unavailable
        return first if within or not first.ready else None
    idle = [pod for pod in old if not pod.ready]
    if idle:
        return idle[-1]
    if not old or unavailable >= max_unavailable:
        return None
    return old[-1]


def _missing_beyond(health: RoleHealth, pod: PodFacts) -> int:
    """Replicas that come only when this one is replaced: waiting for them would be for ever."""
    beyond = sum(_ordinal(other) > _ordinal(pod) for other in health.pods)
    return max(0, health.desired - 1 - _ordinal(pod) - beyond)


def _ordinal(pod: PodFacts) -> int:
    tail = pod.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else 0
