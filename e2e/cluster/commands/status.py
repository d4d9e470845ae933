"""`status`: each component with its process, memory and health, then the node. Exit 0: all well."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import components, containerd, existing, nodeconfig, pki, processes, settings
from cluster.api import ApiClient, ApiError
from cluster.commands.options import Subparsers, add_state
from cluster.controlplane import read_ports
from cluster.health import answers
from cluster.node import NODE_PATH, is_ready, read_record
from cluster.processes import ProcessTable


@dataclass(frozen=True)
class ComponentStatus:
    """One line of the table."""

    name: str
    pid: int  # 0: not running
    resident_bytes: int
    healthy: bool


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `status` command."""
    parser = subparsers.add_parser(
        "status", help="what runs, and whether it is healthy", description=__doc__
    )
    add_state(parser)
    parser.add_argument(
        "-o", dest="output", choices=("text", "json"), default="text", help="output format"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `status` command."""
    if settings.cluster_kind() != "embedded":
        return existing.status(settings.cluster_kind())
    state: Path = options.state
    record = read_record(state)
    if record is None or record.boot_id != processes.boot_id():
        print("no cluster: python -m cluster up")
        return 1
    table = [component(state, name, ask) for name, ask in health(state, record.mode).items()]
    if nodeconfig.KWOK in record.extras:
        table.append(component(state, nodeconfig.KWOK, lambda: True))
    node = "" if record.mode == "control-plane" else node_state(state)
    if options.output == "json":
        print(json.dumps({"components": [asdict(item) for item in table], "node": node}))
    else:
        print(render(table, node))
    well = all(item.healthy for item in table) and node in ("", "Ready")
    return 0 if well else 1


def health(state: Path, mode: str) -> dict[str, Callable[[], bool]]:
    """Every component that should run, and the question whether it is healthy."""
    port = read_ports(state) or settings.Ports()
    here = "127.0.0.1"
    questions: dict[str, Callable[[], bool]] = {
        components.ETCD: lambda: answers(here, port.etcd_client, "/health"),
        components.APISERVER: lambda: answers(here, port.apiserver, "/readyz", tls=True),
        components.CONTROLLER_MANAGER: lambda: answers(
            here, port.controller_manager, "/healthz", tls=True
        ),
    }
    if mode == "node":
        questions |= {
            components.SCHEDULER: lambda: answers(here, port.scheduler, "/healthz", tls=True),
            nodeconfig.CONTAINERD: containerd.ready,
            nodeconfig.KUBELET: lambda: answers(here, settings.KUBELET_HEALTH_PORT, "/healthz"),
            nodeconfig.PROXY: lambda: answers(here, settings.PROXY_HEALTH_PORT, "/healthz"),
            nodeconfig.DNS: lambda: answers(here, settings.DNS_READY_PORT, "/ready"),
            nodeconfig.ROUTER: lambda: answers(here, settings.ROUTER_HEALTH_PORT, "/healthz"),
        }
    return questions


def component(state: Path, name: str, ask: Callable[[], bool]) -> ComponentStatus:
    """The state of one component now."""
    process = ProcessTable(state).running(name)
    if process is None:
        return ComponentStatus(name, 0, 0, healthy=False)
    return ComponentStatus(name, process.pid, processes.resident_bytes(process.pid), healthy=ask())


def node_state(state: Path) -> str:
    """`Ready`, `NotReady` or why it is not known."""
    kubeconfig = pki.Pki(state).kubeconfig(pki.ADMIN)
    try:
        node = ApiClient(kubeconfig, timeout=5).get(NODE_PATH)
    except (ApiError, FileNotFoundError) as error:
        return f"unknown ({error})"
    return "Ready" if is_ready(node) else "NotReady"


def render(table: list[ComponentStatus], node: str) -> str:
    """The table for people."""
    lines = [f"{'COMPONENT':<20}{'PID':>8}{'RSS':>10}  HEALTH"]
    for item in table:
        word = "ok" if item.healthy else ("unhealthy" if item.pid else "not running")
        memory = f"{item.resident_bytes / (1 << 20):.0f} MiB" if item.pid else "-"
        lines.append(f"{item.name:<20}{item.pid or '-':>8}{memory:>10}  {word}")
    total = sum(item.resident_bytes for item in table) / (1 << 20)
    lines.append(f"{'total':<20}{'':>8}{f'{total:.0f} MiB':>10}")
    if node:
        lines.append(f"node {settings.NODE_NAME}: {node}")
    return "\n".join(lines)
