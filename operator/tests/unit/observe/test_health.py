"""A role's health: old pods never pass for new ones."""

from __future__ import annotations

from typing import Any

from kvserving_operator.api.conditions import Reason
from kvserving_operator.observe.health import RoleHealth, read_workload

from .pods import container, ended, pod, statefulset, waiting


def health(workload: Any, *pods: Any, desired: int | None = 2) -> RoleHealth:
    return read_workload(workload, pods, label="StatefulSet x-decode", desired=desired)


def test_all_ready_at_the_current_revision_serves_and_is_settled() -> None:
    found = health(statefulset(), pod("x-decode-0"), pod("x-decode-1"))
    assert (found.replicas, found.ready, found.updated, found.current) == (2, 2, 2, 2)
    assert found.serves()
    assert found.settled


def test_old_pods_do_not_count_although_they_are_ready() -> None:
    found = health(statefulset(), pod("x-decode-0", revision="old"), pod("x-decode-1"))
    assert (found.ready, found.updated, found.current, found.outdated) == (2, 1, 1, 1)
    assert not found.serves()
    assert found.serves(any_revision=True)


def test_nothing_counts_before_the_controller_has_seen_the_generation() -> None:
    found = health(statefulset(generation=2), pod("x-decode-0"), pod("x-decode-1"))
    assert not found.observed
    assert (found.ready, found.updated, found.current) == (2, 0, 0)
    assert not found.serves(any_revision=True)


def test_leaving_pods_are_draining_and_keep_it_unsettled() -> None:
    pods = [pod("x-decode-0"), pod("x-decode-1"), pod("x-decode-2", terminating=True)]
    found = health(statefulset(), *pods)
    assert (found.replicas, found.draining) == (2, 1)
    assert found.serves()
    assert not found.settled


def test_surplus_pods_keep_it_unsettled() -> None:
    found = health(statefulset(replicas=1), pod("x-decode-0"), pod("x-decode-1"), desired=1)
    assert found.serves()
    assert not found.settled


def test_pods_of_somebody_else_are_not_counted() -> None:
    found = health(statefulset(), pod("x-decode-0"), pod("x-stray", owner="other"))
    assert found.replicas == 1


def test_missing_workload() -> None:
    found = health(None, desired=2)
    assert not found.exists
    assert not found.serves()


def test_wanted_replicas_come_from_the_workload_when_there_is_no_plan() -> None:
    assert health(statefulset(replicas=3), desired=None).desired == 3


def test_the_worst_problem_is_told_and_all_are_counted() -> None:
    crashing = [container(state=waiting("CrashLoopBackOff"), lastState=ended(1))]
    pulling = [container(state=waiting("ImagePullBackOff"))]
    found = health(
        statefulset(),
        pod("x-decode-0", ready=False, containers=crashing),
        pod("x-decode-1", ready=False, containers=pulling),
    )
    assert found.problem is not None
    assert found.problem.reason is Reason.IMAGE_PULL_FAILED
    assert found.problems == 2


def deployment(**status: int) -> Any:
    return {
        "kind": "Deployment",
        "metadata": {"name": "x-router", "uid": "d", "generation": 1},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1} | status,
    }


def test_pods_that_a_node_put_an_end_to_are_no_replicas_of_a_deployment() -> None:
    """Nobody deletes them: they stay, beside those that took their place."""
    evicted = pod(
        "r-0", owner="rs", ready=False, containers=[container(state=ended(137, "OOMKilled"))]
    )
    evicted["status"] |= {"phase": "Failed", "reason": "Evicted"}
    finished = pod("r-3", owner="rs", ready=False)
    finished["status"] |= {"phase": "Succeeded"}
    pods = [evicted, pod("r-1", owner="rs"), pod("r-2", owner="rs"), finished]
    found = health(deployment(replicas=2, updatedReplicas=2), *pods)
    assert (found.replicas, found.ready, found.problem) == (2, 2, None)
    assert found.settled


def test_a_deployment_counts_when_only_updated_replicas_are_left() -> None:
    pods = [pod("r-1", owner="rs"), pod("r-2", owner="rs")]
    assert health(deployment(replicas=2, updatedReplicas=2), *pods).settled
    rolling = health(deployment(replicas=3, updatedReplicas=1), *pods)
    assert not rolling.serves()
    assert rolling.ready == 2
