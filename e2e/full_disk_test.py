"""Promise: with a node's disk full serving goes on, the operator works, and it says what is wrong.

The pods' logs lie on a file system of half a megabyte, which is filled to the last byte and file:
no log line can be written any more, and no container can be started.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import settings
from conftest import serve
from self_healing_test import minimal, scale_operator
from stack.agent import Agent
from stack.client import Client, prompt
from stack.install import Testbed
from stack.kubectl import Kubectl, wait_for
from stack.traffic import Traffic

NAME = "disk"
BYTES, FILES = "512k", 200
FILL = "spread-over-nothing"


@pytest.fixture
def logs(testbed: Testbed) -> Iterator[Path]:
    """A small file system for the logs of pods that start from now on, the operator's among them.

    Containers that run already go on writing to the files that they have open.
    """
    folder = settings.state_dir() / "log" / "pods"
    options = f"size={BYTES},nr_inodes={FILES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "kvs-logs", str(folder)], check=True)
    try:
        scale_operator(testbed, 0)
        scale_operator(testbed, 1)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        scale_operator(testbed, 0)
        scale_operator(testbed, 1)


def fill(folder: Path) -> None:
    """Use up every byte, then every file of the file system; the folder must be a living pod's.

    kubelet deletes what it does not know beside those.
    """
    with contextlib.suppress(OSError), (folder / FILL).open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with contextlib.suppress(OSError):
        for number in range(FILES):
            (folder / f"{FILL}-{number}").touch()
    with pytest.raises(OSError, match="No space left"):
        (folder / "one-more").touch()


def noted(kubectl: Kubectl) -> str | None:
    """The Service's annotation."""
    metadata = (kubectl.get("service", NAME) or {}).get("metadata") or {}
    found: str | None = (metadata.get("annotations") or {}).get("disk")
    return found


@pytest.fixture
def namespace(testbed: Testbed) -> Iterator[Kubectl]:
    kubectl = testbed.namespace("kvs-disk")
    yield kubectl
    kubectl.delete("kvserving", NAME)


def test_a_full_disk_stops_no_serving_and_is_told(
    logs: Path, namespace: Kubectl, client: Client
) -> None:
    obj = minimal(NAME)
    obj["spec"]["decode"]["replicas"] = 2
    serving = serve(namespace, obj)
    serving.wait_settled()
    (kept,) = logs.glob(f"kvs-disk_{NAME}-decode-0_*")
    fill(kept)

    # The operator, which cannot log any more, still does what the spec says.
    note = {"spec": {"router": {"service": {"annotations": {"disk": "full"}}}}}
    namespace.patch("kvserving", NAME, note)
    wait_for(
        "the Service has the annotation",
        lambda: noted(namespace),
        timeout=120,
    )
    assert client.complete(serving.url, prompt(1, 64), model=serving.model, tokens=4).status == 200

    # An engine that ends there cannot be started: the other one serves, and the condition tells.
    Agent(namespace, NAME, f"{NAME}-decode-1").signal_engine("SIGKILL")
    serving.wait_says(
        "DecodeReady", "False", mentions=["no space left on device", f"{NAME}-decode-1"]
    )
    with Traffic(client, serving.url, serving.model) as traffic:
        for seed in range(5):
            answer = client.complete(serving.url, prompt(seed, 64), model=serving.model)
            assert answer.status == 200
    assert traffic.failed() == []
    assert traffic.replies

    for left in kept.glob(f"{FILL}*"):
        left.unlink()
    serving.wait_settled()  # the kubelet tries ever more seldom, up to five minutes apart
