"""Which changes of a watched object are worth a pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.observe.fingerprint import fingerprint

from .pods import container, pod, statefulset, waiting

SET = statefulset()
POD = pod("x-0", containers=[container(ready=True, state={"running": {}})])
CR = {"metadata": {"name": "x", "namespace": "n", "uid": "u", "generation": 1}, "status": {}}


def changed(obj: Any, path: str, value: Any) -> Any:
    result = copy.deepcopy(obj)
    target = result
    *parents, last = path.split("/")
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
    target[last] = value
    return result


@pytest.mark.parametrize(
    ("resource", "obj", "path", "value"),
    [
        (paths.STATEFULSETS, SET, "status/collisionCount", 1),
        (paths.STATEFULSETS, SET, "status/availableReplicas", 1),
        (paths.STATEFULSETS, SET, "metadata/resourceVersion", "9"),
        (paths.STATEFULSETS, SET, "metadata/managedFields", [1]),
        (paths.KVSERVINGS, CR, "status/phase", "Ready"),
        (paths.POD_DISRUPTION_BUDGETS, CR, "status/disruptionsAllowed", 1),
        (paths.PODS, POD, "status/podIP", "10.0.0.1"),
        (paths.PODS, POD, "spec/nodeName", "n"),
        (paths.PODS, POD, "status/conditions/0/lastTransitionTime", "later"),
    ],
)
def test_noise(resource: Resource, obj: Any, path: str, value: Any) -> None:
    assert fingerprint(resource, obj) == fingerprint(resource, changed(obj, path, value))


@pytest.mark.parametrize(
    ("resource", "obj", "path", "value"),
    [
        (paths.STATEFULSETS, SET, "metadata/generation", 2),
        (paths.STATEFULSETS, SET, "metadata/labels", {"a": "b"}),
        (paths.STATEFULSETS, SET, "metadata/annotations", {"kvserving.io/render-hash": "x"}),
        (paths.STATEFULSETS, SET, "metadata/ownerReferences", []),
        (paths.STATEFULSETS, SET, "metadata/deletionTimestamp", "now"),
        (paths.STATEFULSETS, SET, "status/updateRevision", "newer"),
        (paths.STATEFULSETS, SET, "status/observedGeneration", 2),
        (paths.STATEFULSETS, SET, "status/readyReplicas", 2),
        (paths.KVSERVINGS, CR, "metadata/generation", 2),
        (paths.KVSERVINGS, CR, "metadata/annotations", {"a": "b"}),
        (paths.PODS, POD, "status/conditions/0/status", "False"),
        (paths.PODS, POD, "status/containerStatuses/0/restartCount", 1),
        (paths.PODS, POD, "status/containerStatuses/0/state", waiting("ErrImagePull")),
        (paths.PODS, POD, "metadata/deletionTimestamp", "now"),
        (paths.PODS, POD, "status/phase", "Failed"),
        (paths.CONFIGMAPS, CR, "metadata/resourceVersion", "2"),
    ],
)
def test_news(resource: Resource, obj: Any, path: str, value: Any) -> None:
    assert fingerprint(resource, obj) != fingerprint(resource, changed(obj, path, value))
