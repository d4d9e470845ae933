"""What is kept of a watched object says the same as the object."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.kube.diff import differences
from kvserving_operator.kube.paths import resource_of
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.essence import essence
from kvserving_operator.observe.health import read_workload
from kvserving_operator.observe.labels import is_ours, is_predecessors, labels_of
from kvserving_operator.observe.pods import read_pod
from tests.unit.stack import SPLIT, TIER, rendered

from .pods import container, ended, pod, statefulset, waiting

CRASHED = container(
    state=waiting("CrashLoopBackOff"), lastState=ended(1), restartCount=7, containerID="c"
)
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available. Preemption is not helpful.",
}
PODS: list[Any] = [
    pod("x-0"),
    pod("x-0", terminating=True),
    pod("x-0", ready=False, containers=[CRASHED]),
    pod("x-0", ready=False, containers=[container(state=waiting("ErrImagePull", "no"))]),
    pod("x-0", ready=False, containers=[container(state=ended(137, "OOMKilled"))]),
    pod("x-0", ready=False, conditions=[UNSCHEDULABLE]),
    pod("x-0") | {"status": {"phase": "Failed"}},
    pod("x-0") | {"status": None},
]


def bloated(obj: Any) -> Any:
    """With what the server adds and nobody reads."""
    result = copy.deepcopy(obj)
    result["metadata"] |= {"managedFields": [{"manager": "m"}], "resourceVersion": "7"}
    return result


@pytest.mark.parametrize("subject", PODS)
def test_a_pod_reads_the_same(subject: Any) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-x-0"}}
    volumes = [claim, {"name": "scratch", "emptyDir": {}}]
    whole = bloated(subject) | {"spec": {"containers": [{"name": "e"}], "volumes": volumes}}
    kept = essence(paths.PODS, whole)
    assert read_pod(kept) == read_pod(whole)
    assert read_pod(kept).claims == {"data"}
    assert labels_of(kept) == labels_of(whole)
    assert is_ours(kept, "sts-uid")
    assert kept["spec"] == {"volumes": [claim]}
    assert "managedFields" not in kept["metadata"]


async def test_agents_are_found_where_they_were() -> None:
    whole = bloated(pod("x-0"))
    whole["status"]["podIP"] = "127.0.0.1"
    async with Agents(port=1) as agents:  # nobody listens there
        assert await agents.facts([essence(paths.PODS, whole)], "t") == {"x-0": None}


@pytest.mark.parametrize("observed", [0, 1])
def test_a_workload_is_as_healthy(observed: int) -> None:
    whole = bloated(statefulset(observed=observed))
    whole["status"] |= {"replicas": 2, "updatedReplicas": 1, "conditions": [{"type": "X"}]}
    deployment = whole | {"kind": "Deployment"}
    pods = [pod("x-0"), pod("x-1", revision="old")]
    for resource, workload in ((paths.STATEFULSETS, whole), (paths.DEPLOYMENTS, deployment)):
        kept = essence(resource, workload)
        assert "conditions" not in kept["status"]
        assert read_workload(kept, pods, label="w", desired=2) == read_workload(
            workload, pods, label="w", desired=2
        )


@pytest.mark.parametrize("child", rendered({**SPLIT, **TIER}), ids=lambda c: c["kind"])
def test_a_child_compares_the_same(child: Any) -> None:
    whole = bloated(child) | {"status": {"loadBalancer": {}}}
    kept = essence(resource_of(child), whole)
    assert list(differences(child, kept)) == list(differences(child, whole)) == []
    changed = copy.deepcopy(child)
    changed["metadata"]["labels"]["new"] = "label"
    assert list(differences(changed, kept)) == list(differences(changed, whole)) != []
    assert is_predecessors(kept, "x", "another uid") == is_predecessors(whole, "x", "another uid")
    assert "managedFields" not in kept["metadata"]
    assert "managedFields" in whole["metadata"], "the object itself is left alone"
