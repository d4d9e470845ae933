"""What is wrong with a pod is named, with its reason, and stably."""

from __future__ import annotations

from typing import Any

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.observe.pods import read_pod

from .pods import container, ended, pod, waiting


def problem(*containers: dict[str, Any], **more: Any) -> Any:
    return read_pod(pod("x-0", ready=False, containers=list(containers), **more)).problem


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"]
)
def test_pull_failures_are_one_reason_with_one_message(reason: str) -> None:
    found = problem(container(state=waiting(reason, "back-off 10s pulling")))
    assert found.reason is Reason.IMAGE_PULL_FAILED
    assert found.message == "pod x-0: container engine cannot pull reg/engine:1"


def test_crash_loop_tells_the_exit_code() -> None:
    found = problem(
        container(state=waiting("CrashLoopBackOff", "back-off 5m"), lastState=ended(139))
    )
    assert found.reason is Reason.CRASHING
    assert found.message == "pod x-0: container engine keeps ending with exit code 139"


def test_one_restart_is_no_crash_and_three_are_also_between_crashes() -> None:
    running = {"running": {}}
    assert problem(container(state=running, lastState=ended(1), restartCount=1)) is None
    found = problem(container(state=running, lastState=ended(1), restartCount=3))
    assert found.reason is Reason.CRASHING


def test_the_message_does_not_change_with_every_restart() -> None:
    messages = {
        problem(container(state=state, lastState=ended(1), restartCount=count)).message
        for count in (4, 5)
        for state in (waiting("CrashLoopBackOff"), {"running": {}}, ended(1))
    }
    assert len(messages) == 1


def test_out_of_memory_stays_told_until_the_container_is_ready_again() -> None:
    for state in (waiting("CrashLoopBackOff"), {"running": {}}):
        found = problem(container(state=state, lastState=ended(137, "OOMKilled"), restartCount=1))
        assert found.reason is Reason.OUT_OF_MEMORY
    healthy = container(ready=True, state={"running": {}}, lastState=ended(137, "OOMKilled"))
    assert read_pod(pod("x-0", containers=[healthy])).problem is None


def test_unschedulable_keeps_the_stable_part_of_the_message() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes",
    }
    found = problem(conditions=[condition])
    assert found.reason is Reason.UNSCHEDULABLE
    assert found.message.endswith("0/3 nodes are available: 3 Insufficient nvidia.com/gpu")


def test_containers_that_cannot_be_made() -> None:
    found = problem(
        container(state=waiting("CreateContainerConfigError", "secret hf not found. more"))
    )
    assert found.message == "pod x-0: container engine cannot be started: secret hf not found"


def test_a_container_that_the_runtime_cannot_start_is_told_by_its_cause() -> None:
    """As containerd and kubelet say it on a full disk, first at once and then between attempts."""
    why = "failed to create containerd task: open /var/log/pods/u1/engine/{}.log: no space left"
    states = [
        {"state": waiting("RunContainerError", why.format(1))},
        {"state": waiting("CrashLoopBackOff", "back-off 10s"), "lastState": not_started(why, 2)},
        {"state": not_started(why, 3), "restartCount": 3},
    ]
    for state in states:
        found = problem(container(**state))
        assert found.reason is Reason.CRASHING
        assert found.message == "pod x-0: container engine cannot be started: no space left"
    again = container(state={"running": {}}, lastState=not_started(why, 3))
    assert problem(again) is None


def not_started(why: str, attempt: int) -> dict[str, Any]:
    message = f"{why.format(attempt)}: unknown"
    return {"terminated": {"reason": "StartError", "exitCode": 128, "message": message}}


def test_init_containers_count_and_finished_ones_do_not() -> None:
    raw = pod("x-0", ready=False)
    raw["status"]["initContainerStatuses"] = [
        container("wait-for-tier", ready=True, state=ended(0, "Completed")),
        container("agent", state=waiting("CrashLoopBackOff"), lastState=ended(2)),
    ]
    found = read_pod(raw).problem
    assert found is not None
    assert "container agent" in found.message


def test_ready_and_leaving_pods_have_no_problem() -> None:
    broken = [container(state=waiting("CrashLoopBackOff"), lastState=ended(1))]
    facts = read_pod(pod("x-0", ready=True, terminating=True, containers=broken))
    assert (facts.ready, facts.terminating, facts.problem) == (False, True, None)


def test_a_pod_without_status_is_just_not_ready() -> None:
    facts = read_pod({"metadata": {"name": "p"}})
    assert not facts.ready
    assert facts.problem is None
