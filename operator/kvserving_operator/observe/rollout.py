"""Which pod a rollout replaces next. Pure.

StatefulSets have `updateStrategy: OnDelete`: their controller makes a pod of the new revision only
when the old one is gone, and only the operator deletes. One pod at a time: those of an old revision
that do not serve anyway go first and cost nothing; then, within the budget, those that do serve,
from the highest ordinal down. Pods of the current revision are never deleted here: an unhealthy one
is restarted by its kubelet, and replacing it would not change it.
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
    idle = [pod for pod in old if not pod.ready]
    if idle:
        return idle[-1]
    unavailable = max(0, health.desired - health.ready)
    if not old or unavailable >= max_unavailable:
        return None
    return old[-1]
