"""The whole life of a real node: up, repair, refusals, kills, down, and nothing left each time."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster import claim, settings
from cluster.archive import write_single_layer
from cluster.machine_tests import snapshot
from cluster.processes import ProcessTable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a node needs root")
PACKAGES = Path(claim.__file__).parents[1]


@dataclass
class Tool:
    """`python -m cluster` with a state folder of its own."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KVSERVING_STATE": str(self.state), "PYTHONPATH": str(PACKAGES)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cluster", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        process = self.start(*arguments)
        text, _ = process.communicate(timeout=300)
        assert process.returncode == code, text
        return text

    def kubectl(self, *arguments: str) -> str:
        kubeconfig = self.state / "kubeconfig" / "admin.kubeconfig"
        command = [str(self.state / "bin" / "kubectl"), f"--kubeconfig={kubeconfig}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def pid(self, name: str) -> int:
        process = ProcessTable(self.state).running(name)
        assert process is not None, f"{name} does not run"
        return process.pid

    def kill(self, *names: str) -> None:
        for name in names:
            os.kill(self.pid(name), signal.SIGKILL)

    def run_pods(self, count: int) -> None:
        image = f"--image={settings.PAUSE_IMAGE}"
        self.kubectl("create", "deployment", "pods", image, f"--replicas={count}")
        self.kubectl("expose", "deployment", "pods", "--port=80", "--type=NodePort")
        self.kubectl("rollout", "status", "deployment/pods", "--timeout=120s")


def eventually(condition: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    held = claim.read()
    assert held is None, f"take the cluster of {held and held.state} down first"
    tool = Tool(tmp_path_factory.mktemp("node"))
    yield tool
    tool.run("down", "--purge")


@pytest.fixture
def clean(tool: Tool) -> Iterator[None]:
    """The test ends with `down`, and the machine is as it was before."""
    before = snapshot.take(tool.state)
    yield
    report = tool.run("down")
    assert "nothing is left" in report
    after = snapshot.take(tool.state)
    assert after == before
    assert sorted(path.name for path in settings.RUNTIME_DIR.iterdir()) == ["lock"]


@pytest.mark.usefixtures("clean")
def test_up_with_pods_and_down(tool: Tool) -> None:
    text = tool.run("up")
    assert "cached: hyper" in text
    assert "ready in" in text
    node = json.loads(tool.kubectl("get", "node", settings.NODE_NAME, "-o", "json"))
    for field in ("capacity", "allocatable"):
        assert settings.EXTENDED_RESOURCES.items() <= node["status"][field].items()
    tool.run_pods(8)
    tool.kubectl("get", "--raw", "/readyz")
    status = json.loads(tool.run("status", "-o", "json"))
    assert status["node"] == "Ready"
    assert all(item["healthy"] for item in status["components"])


@pytest.mark.usefixtures("clean")
def test_a_second_up_changes_nothing_and_others_are_refused(
    tool: Tool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tool.run("up")
    pids = {name: tool.pid(name) for name in ("etcd", "apiserver", "kubelet", "containerd")}
    assert "already up, nothing to do" in tool.run("up")
    assert pids == {name: tool.pid(name) for name in pids}
    other = Tool(tmp_path_factory.mktemp("other"))
    assert f"KVSERVING_STATE={tool.state}" in other.run("up", code=1)
    assert f"KVSERVING_STATE={tool.state}" in other.run("down", code=1)
    assert "holds a node" in tool.run("up", "--control-plane-only", code=1)
    with claim.lock(tool.state):
        assert f"process {os.getpid()} for {tool.state}" in tool.run("down", code=1)


@pytest.mark.usefixtures("clean")
def test_dead_components_are_repaired_and_pods_go_on(tool: Tool) -> None:
    tool.run("up")
    tool.run_pods(2)
    started = tool.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.startTime}")
    tool.kill("apiserver")
    assert "started apiserver" in tool.run("up")
    tool.kill("kubelet", "kube-router", "containerd", "coredns")
    assert tool.run("status", code=1).count("not running") == 4
    assert "kubelet" in tool.run("up")
    node = json.loads(tool.kubectl("get", "node", settings.NODE_NAME, "-o", "json"))
    assert settings.EXTENDED_RESOURCES.items() <= node["status"]["allocatable"].items()
    tool.kill("etcd", "controller-manager", "scheduler", "kube-proxy")
    tool.run("up")
    assert started == tool.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.startTime}")
    tool.kubectl("scale", "deployment/pods", "--replicas=3")
    tool.kubectl("rollout", "status", "deployment/pods", "--timeout=60s")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("component", ["etcd", "apiserver", "kubelet"])
def test_the_tool_killed_in_the_middle_of_up(tool: Tool, component: str) -> None:
    """Killed as soon as a component has a record: `up` goes on, and `down` finds everything."""
    process = tool.start("up")
    record = tool.state / "run" / f"{component}.json"
    assert eventually(record.exists, 120)
    process.kill()
    process.communicate()
    if component != "apiserver":
        assert "ready in" in tool.run("up")


@pytest.mark.usefixtures("clean")
def test_everything_killed_with_pods_running(tool: Tool) -> None:
    tool.run("up")
    tool.run_pods(3)
    for process in ProcessTable(tool.state).all():
        process.kill(signal.SIGKILL)
    report = tool.run("down")
    assert re.search(r"removed \d+ container processes|removed \d+ processes", report)
    text = tool.run("up")  # what containerd remembers of the dead pods does not come back
    assert "ready in" in text
    assert tool.kubectl("get", "pods", "-A", "-o", "name") == ""


@pytest.mark.usefixtures("clean")
def test_after_a_restart_of_the_machine_a_new_cluster_begins(tool: Tool) -> None:
    """A restart is told by the boot identifier: all processes are gone, records are stale."""
    tool.run("up")
    tool.kubectl("create", "namespace", "old")
    for process in ProcessTable(tool.state).all():
        process.kill(signal.SIGKILL)
    stale = [tool.state / "cluster.json", *(tool.state / "run").glob("*.json")]
    for path in stale:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "earlier"}))
    assert "the machine was restarted" in tool.run("up")
    assert "namespace/old" not in tool.kubectl("get", "namespaces", "-o", "name")


@pytest.mark.usefixtures("clean")
def test_images_are_loaded_once_and_stay(tool: Tool, tmp_path: Path) -> None:
    tool.run("up")
    root = tmp_path / "root"
    root.mkdir()
    (root / "data").write_bytes(os.urandom(1 << 20))
    archive = tmp_path / "image.tar"
    write_single_layer(root, archive, name="localhost/test/one:1", command=["/data"])
    folder = tmp_path / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    docker = tmp_path / "docker.tar"
    write_docker_archive(docker, "localhost/test/two:1")
    assert tool.run("load-image", str(archive), str(docker)).count(": loaded") == 2
    text = tool.run("load-image", str(archive), str(folder), str(docker))
    assert text.count("there already") == 3
    with archive.open("rb") as stream:
        command = [sys.executable, "-m", "cluster", "load-image", "-"]
        subprocess.run(command, env=tool.environment, stdin=stream, check=True)
    tool.run("down")
    tool.run("up")
    assert "there already" in tool.run("load-image", str(folder))


@pytest.mark.usefixtures("clean")
def test_kwok_plays_nodes_when_asked(tool: Tool, tmp_path: Path) -> None:
    tool.run("up", "--with", "kwok")
    assert "already up" in tool.run("up")  # it stays, without being asked for again
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fake"}}
    node["metadata"] |= {"annotations": {"kwok.x-k8s.io/node": "fake"}}  # type: ignore[operator]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "simulated"}}
    pod["spec"] = {"nodeName": "fake", "containers": [{"name": "c", "image": "none"}]}
    for name, manifest in (("node", node), ("pod", pod)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(manifest))
        tool.kubectl("create", "-f", str(file))
    tool.kubectl("wait", "--for=condition=Ready", "node/fake", "pod/simulated", "--timeout=60s")
    tool.kubectl("delete", "pod/simulated", "--timeout=30s")


def write_docker_archive(target: Path, name: str) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "file", b"content")
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {"architecture": "amd64", "os": "linux", "config": {}}
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as tar:
        add(tar, "layer.tar", layer.getvalue())
        add(tar, "config.json", json.dumps(config).encode())
        add(tar, "manifest.json", json.dumps(manifest).encode())


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
