"""engine-sim's own suite, inside its image in a pod: real LMCache over gloo, a real Valkey.

The stand-in is only worth something as long as wrong KV gives a wrong answer in it; its suite has
the negative controls.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stack.client import client_pod
from stack.install import Testbed, image
from stack.kubectl import Kubectl, wait_for

NAME = "engine-sim-suite"
SUITE_TIMEOUT = 900
COMMAND = [
    "/opt/kvserving/engine-sim/tests/run.sh",
    "/opt/kvserving/venv",
    "-p",
    "no:cacheprovider",
    "--color=no",
]


@pytest.fixture
def suite(testbed: Testbed) -> Iterator[Kubectl]:
    kubectl = testbed.namespace("kvs-engine-sim")
    pod = client_pod(NAME, image("engine-sim"))
    container = pod["spec"]["containers"][0]
    container["command"] = COMMAND
    container["resources"] = {
        "requests": {"cpu": "500m", "memory": "2Gi"},
        "limits": {"memory": "6Gi"},
    }
    container["volumeMounts"] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    pod["spec"] |= {
        "restartPolicy": "Never",
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ],
    }
    kubectl.delete("pod", NAME)
    kubectl.apply(pod)
    yield kubectl
    kubectl.delete("pod", NAME)


def test_suite_passes_inside_the_image(suite: Kubectl) -> None:
    def phase() -> str | None:
        now: str = ((suite.get("pod", NAME) or {}).get("status") or {}).get("phase", "")
        return now if now in {"Succeeded", "Failed"} else None

    ended = wait_for("engine-sim's suite ends", phase, timeout=SUITE_TIMEOUT, every=2)
    log = suite.run("logs", NAME)
    assert ended == "Succeeded", log[-6000:]
    assert " passed" in log.splitlines()[-1], log[-500:]
    assert "skipped" not in log.splitlines()[-1], log[-500:]
