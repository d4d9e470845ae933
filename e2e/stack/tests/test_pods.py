from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stack import pods
from stack.kubectl import Kubectl, KubectlError, NotInTimeError, wait_for
from stack.tests.standin import Standin


def pod(uid: str = "1", *, ready: bool = True, ending: bool = False) -> dict[str, Any]:
    metadata = {"name": "engine-0", "uid": uid}
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "engine", "state": {"running": {}}}],
            "initContainerStatuses": [
                {"name": "agent", "state": {"running": {}}},
                {"name": "wait", "state": {"terminated": {}}},
            ],
        },
    }


def test_a_replaced_pod_is_a_new_one_that_is_ready(standin: Standin) -> None:
    standin.answer(get_pod=[pod("1"), pod("1"), "", pod("2", ready=False), pod("2")])
    pods.replace(standin.kubectl, "engine-0", timeout=20)
    assert [call.split()[0] for call in standin.calls()] == ["get", "delete", *["get"] * 4]
    assert "--wait=false" in standin.calls()[1]  # else nothing is told while the old one ends


def test_a_pod_that_is_not_there_cannot_be_replaced(standin: Standin) -> None:
    standin.answer(get_pod=[""])
    with pytest.raises(KubectlError, match="engine-0 is not there"):
        pods.replace(standin.kubectl, "engine-0")
    assert not [call for call in standin.calls() if call.startswith("delete")]


def test_a_namespace_goes_with_its_pods_told(standin: Standin) -> None:
    there = {"metadata": {"name": "demo"}}
    standin.answer(
        get_namespace=[there, there, there, ""],
        get_pods=[{"items": [pod(ending=True)]}, "error: restarting", {"items": []}],
    )
    said: list[str] = []
    pods.delete_namespace(standin.kubectl, said.append, timeout=20)
    assert [line.split(" s  ")[1] for line in said] == [
        "1 pod left: engine-0 (engine agent still running)",
        "no pods left; Kubernetes is finishing the namespace, up to a minute",
    ]
    assert standin.calls()[0] == "delete namespace demo --ignore-not-found --wait=false"


def test_a_namespace_whose_cluster_is_thrown_away_is_waited_for_while_it_has_pods(
    standin: Standin,
) -> None:
    standin.answer(
        get_namespace=[{"metadata": {"name": "demo"}}],
        get_pods=[{"items": [pod()]}, {"items": [pod()]}, {"items": []}],
    )
    said: list[str] = []
    pods.delete_namespace(standin.kubectl, said.append, timeout=20, only_pods=True)
    assert len(said) == 1
    assert standin.calls()[-1] == "get pods -o json"


def test_what_stays_is_named_with_what_the_server_says(standin: Standin) -> None:
    condition = {"status": "True", "message": "Some resources have finalizers"}
    standin.answer(
        get_namespace=[{"status": {"conditions": [condition, condition | {"status": "False"}]}}],
        get_pods=[{"items": [pod(ending=True)]}],
    )
    with pytest.raises(NotInTimeError) as error:
        pods.delete_namespace(standin.kubectl, lambda _: None, timeout=0.1)
    assert str(error.value) == (
        "namespace demo is still there after 0 s: "
        "1 pod left: engine-0 (engine agent still running); Some resources have finalizers"
    )


def test_a_slow_pods_log_is_shown_once_and_only_if_it_is_ending(standin: Standin) -> None:
    standin.answer(
        get_pods=[{"items": [pod()]}, {"items": [pod(ending=True)]}],
        logs=["[engine] waiting for a worker"],
    )
    said: list[str] = []
    look = pods.Leaving(standin.kubectl, said.append, logs_after=60)
    for elapsed in (61.0, 62.0, 63.0):
        look(elapsed)
    assert said[0].endswith("(engine agent still running, deletion not requested yet)")
    assert said[2:] == [
        "engine-0 still runs; its last log lines:",
        "  [engine] waiting for a worker",
    ]
    early = pods.Leaving(standin.kubectl, said.append, logs_after=60)
    early(59.0)
    assert len([call for call in standin.calls() if call.startswith("logs")]) == 1


def test_a_log_that_cannot_be_had_says_why(standin: Standin) -> None:
    standin.answer(logs=["error: container is gone"])
    (line,) = pods.last_log_lines(standin.kubectl, "engine-0")
    assert line.startswith("(no log: ")
    assert "container is gone" in line


def test_a_kubectl_that_hangs_is_an_error_that_waits_go_on_after(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    kubectl = Kubectl(str(program), "none")
    with pytest.raises(KubectlError, match="no end in 0 s"):
        kubectl.run("get", "pods", timeout=0.1)
    answers = iter(["", "there"])

    def probe() -> str:
        return next(answers) or kubectl.run("get", timeout=0.1)

    assert wait_for("it", probe, timeout=10, every=0.01) == "there"
