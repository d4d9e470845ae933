"""Promise: pods ask for whole GPUs and RDMA devices, and are scheduled on what the node advertises.

The devices are advertised extended resources without hardware; the engine is engine-sim. Eight
ranks ask for 9 GiB, so this module comes before those that keep engines running (order of names).
"""

from __future__ import annotations

from conftest import example, serve
from stack.install import Testbed
from stack.kubectl import wait_for


def test_pcp8_pods_with_gpus_and_rdma_are_scheduled(testbed: Testbed) -> None:
    kubectl = testbed.namespace("kvs-devices")
    obj = example("quickstart-pcp", name="devices")
    spec = obj["spec"]
    spec["kvCache"].pop("remote", None)
    spec["kvCache"].pop("local", None)
    spec["prefill"]["parallelism"] = {"prefillContext": 8}
    spec["prefill"]["accelerator"] = {"resourceName": "nvidia.com/gpu"}
    spec["prefill"]["rdma"] = {"resources": {"rdma/ib": "8"}}
    kubectl.run(
        "label",
        "namespace",
        kubectl.namespace,
        "pod-security.kubernetes.io/enforce=privileged",
        "--overwrite",
    )  # fmt: skip  IPC_LOCK, which RDMA needs, is outside `restricted`
    serve(kubectl, obj)

    def scheduled() -> dict[str, str] | None:
        pod = kubectl.get("pod", "devices-prefill-0")
        conditions = ((pod or {}).get("status") or {}).get("conditions") or []
        if not any(c["type"] == "PodScheduled" and c["status"] == "True" for c in conditions):
            return None
        engine = next(c for c in (pod or {})["spec"]["containers"] if c["name"] == "engine")
        limits: dict[str, str] = engine["resources"]["limits"]
        return limits

    try:
        # Pods of the tests before may have to end first.
        limits = wait_for("the prefill pod is scheduled", scheduled, timeout=300)
    finally:
        kubectl.delete("kvserving", "devices")
    assert limits["nvidia.com/gpu"] == "8"
    assert limits["rdma/ib"] == "8"
