"""The one node: containerd, kubelet, kube-proxy, CoreDNS, kube-router over a control plane.

`up` starts what does not run and leaves alone what does, so it is also the repair of a node whose
programs died. A cluster of an earlier boot is not continued: its etcd did not fsync.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster import (
    binaries,
    cgroups,
    cleanup,
    containerd,
    kwokconfig,
    network,
    nodeconfig,
    pki,
    progress,
    sandbox,
    settings,
)
from cluster.api import ApiClient, ApiError
from cluster.components import Layout
from cluster.controlplane import ControlPlane
from cluster.errors import ClusterError
from cluster.health import answers
from cluster.nodeconfig import NodePaths
from cluster.processes import Process, ProcessTable, boot_id, write_atomically
from cluster.settings import Ports
from cluster.waiting import wait_until

NODE_PATH = f"/api/v1/nodes/{settings.NODE_NAME}"
IDENTITIES = (pki.KUBELET, pki.PROXY, pki.DNS, pki.ROUTER, pki.KWOK)
READY_TIMEOUT = 120.0


@dataclass(frozen=True)
class Record:
    """What a state folder holds: `cluster.json`."""

    mode: str  # "node" or "control-plane"
    boot_id: str
    node_ip: str = ""
    extras: list[str] = field(default_factory=list)


def read_record(state: Path) -> Record | None:
    """The record of a state folder, of whatever boot."""
    try:
        return Record(**json.loads((state / "cluster.json").read_text()))
    except (FileNotFoundError, TypeError, ValueError):
        return None


def write_record(state: Path, record: Record) -> None:
    """Write `cluster.json`."""
    write_atomically(state / "cluster.json", json.dumps(asdict(record)))


class Node:
    """The node of one state folder. The caller holds the machine's lock and claim."""

    def __init__(self, state: Path, *, extras: list[str]) -> None:
        self.state = state
        self.paths = NodePaths(state)
        self.table = ProcessTable(state)
        self._extras = extras
        self._node_ip = network.node_ip()
        self.plane = ControlPlane(
            state, fixed_ports=Ports(), scheduler=True, node_ip=self._node_ip, detached=True
        )

    def up(self, programs: dict[str, Path]) -> list[str]:
        """Bring everything up; returns the names of what had to be started."""
        fresh = self._begin()
        binaries.link_all(programs, self.state / "bin")
        network.prepare(self.state)
        cgroups.create()
        started = self._start(
            nodeconfig.CONTAINERD,
            nodeconfig.containerd(self.paths),
            file="containerd.toml",
            config=nodeconfig.containerd_toml(self.paths),
        )
        started += self.plane.start()
        layout = self.plane.layout
        layout.programs.update(programs)
        for identity in IDENTITIES:
            self.plane.pki.add(identity, layout.server)
        self._prepare_containerd(fresh=fresh)
        started += self._start_node(layout)
        self._wait_usable()
        return started

    def _start_node(self, layout: Layout) -> list[str]:
        started = self._start(
            nodeconfig.KUBELET,
            nodeconfig.kubelet(layout, self.paths),
            file="kubelet.json",
            config=json.dumps(nodeconfig.kubelet_config(layout)),
        )
        started += self._start(nodeconfig.PROXY, nodeconfig.proxy(layout))
        started += self._start(
            nodeconfig.DNS,
            nodeconfig.dns(layout, self.paths),
            file="Corefile",
            config=nodeconfig.corefile(layout),
        )
        self._register(kubelet_is_new=nodeconfig.KUBELET in started)
        started += self._start(nodeconfig.ROUTER, nodeconfig.router(layout))
        if nodeconfig.KWOK in self._extras:
            started += self._start(
                nodeconfig.KWOK,
                nodeconfig.kwok(layout, self.paths),
                file="kwok.yaml",
                config=kwokconfig.stages(),
            )
        return started

    def _begin(self) -> bool:
        """Whether the cluster is new; what an earlier boot or another address left is dropped."""
        old = read_record(self.state)
        fresh = old is None or old.boot_id != boot_id()
        if old is not None and not fresh and old.node_ip != self._node_ip:
            raise ClusterError(
                f"the machine's address changed from {old.node_ip} to {self._node_ip}: "
                "python -m cluster down, then up"
            )
        if fresh:
            if old is not None:
                progress.say("the machine was restarted: a new cluster, with the images kept")
            cleanup.forget_cluster(self.state)
        write_record(self.state, Record("node", boot_id(), self._node_ip, self._extras))
        return fresh

    def _start(self, name: str, argv: list[str], *, file: str = "", config: str = "") -> list[str]:
        if file:
            write_atomically(self.paths.config / file, config)
        return [name] if self.table.ensure(name, argv, config=config) else []

    def _prepare_containerd(self, *, fresh: bool) -> None:
        self._wait("containerd", [nodeconfig.CONTAINERD], containerd.ready)
        if fresh:
            # Containers of a cluster that was not taken down properly; kubelet must not see them.
            containerd.remove_all_containers()
        sandbox.load()

    def _register(self, *, kubelet_is_new: bool) -> None:
        """Give the node its pod network and its extended resources.

        A starting kubelet sets extended resources that no plugin backs to zero, so they are
        written only after its first report.
        """
        process = self.table.get(nodeconfig.KUBELET)
        since = _started_at(process) if kubelet_is_new and process else 0.0
        self._wait("the node", [nodeconfig.KUBELET], lambda: _heartbeat(self._node()) >= since)
        network_spec = {"podCIDR": settings.POD_CIDR, "podCIDRs": [settings.POD_CIDR]}
        resources = {
            "capacity": settings.EXTENDED_RESOURCES,
            "allocatable": settings.EXTENDED_RESOURCES,
        }
        self.api.merge_patch(NODE_PATH, {"spec": network_spec})
        self.api.merge_patch(f"{NODE_PATH}/status", {"status": resources})

    @property
    def api(self) -> ApiClient:
        """A client as administrator."""
        return self.plane.api

    def _node(self) -> dict[str, Any]:
        try:
            return self.api.get(NODE_PATH)
        except ApiError as error:
            if error.status in (0, 404):
                return {}
            raise

    def _wait_usable(self) -> None:
        names = [nodeconfig.KUBELET, nodeconfig.PROXY, nodeconfig.DNS, nodeconfig.ROUTER]
        self._wait("the node", names, self._usable)

    def _usable(self) -> bool:
        return (
            is_schedulable(self._node())
            and answers("127.0.0.1", settings.PROXY_HEALTH_PORT, "/healthz")
            and answers("127.0.0.1", settings.DNS_READY_PORT, "/ready")
            and answers("127.0.0.1", settings.ROUTER_HEALTH_PORT, "/healthz")
            and self._default_account_exists()
        )

    def _default_account_exists(self) -> bool:
        try:
            self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except ApiError:
            return False
        return True

    def _wait(self, what: str, names: list[str], ready: Callable[[], bool]) -> None:
        def condition() -> bool:
            for name in names:
                process = self.table.get(name)
                if process is not None:
                    self.table.require_alive(process)
            return ready()

        wait_until(condition, timeout=READY_TIMEOUT, what=what, interval=0.1)


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a node's Ready condition is True."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def is_schedulable(node: dict[str, Any]) -> bool:
    """Ready, without taints, and with its extended resources."""
    allocatable = node.get("status", {}).get("allocatable", {})
    resources = all(allocatable.get(k) == v for k, v in settings.EXTENDED_RESOURCES.items())
    return is_ready(node) and not node.get("spec", {}).get("taints") and resources


def _heartbeat(node: dict[str, Any]) -> float:
    conditions = node.get("status", {}).get("conditions", [])
    times = [item["lastHeartbeatTime"] for item in conditions if item["type"] == "Ready"]
    return datetime.datetime.fromisoformat(times[0]).timestamp() if times else -1.0


def _started_at(process: Process) -> float:
    """When a process started, in seconds since the epoch, rounded down as heartbeats are."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return float(int(time.time() - uptime + process.start_ticks / 100))
