"""The machine's side of the pod network: addresses, CNI configuration, conflicts."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path
from typing import Any

from cluster import settings
from cluster.claim import write_sysctl
from cluster.errors import ClusterError
from cluster.processes import write_atomically

Network = ipaddress.IPv4Network


def ip(*args: str) -> str:
    """Run the `ip` command; raise ClusterError with its message when it fails."""
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def node_ip() -> str:
    """The machine's address as pods see it: on the link of the default route, or any global one."""
    routes: list[dict[str, Any]] = json.loads(ip("-json", "-4", "route", "show", "default") or "[]")
    devices = [route["dev"] for route in routes]
    links: list[dict[str, Any]] = json.loads(
        ip("-json", "-4", "address", "show", "scope", "global")
    )
    links.sort(key=lambda link: link.get("ifname") not in devices)
    for link in links:
        for address in link.get("addr_info", []):
            if address["local"] != settings.DNS_IP:
                return str(address["local"])
    raise ClusterError("this machine has no IPv4 address of global scope; the node needs one")


def conflicts(routes: list[dict[str, Any]]) -> list[str]:
    """Routes (of `ip -json route`) that overlap our networks and are not those of our pods."""
    found = []
    for name, cidr in (("pod", settings.POD_CIDR), ("service", settings.SERVICE_CIDR)):
        network = Network(cidr)
        for route in routes:
            target = route.get("dst", "default")
            if target == "default" or str(route.get("dev", "")).startswith("veth"):
                continue
            if Network(target, strict=False).overlaps(network):
                found.append(f"{target} dev {route.get('dev')} overlaps the {name} network {cidr}")
    return found


def route_conflicts() -> list[str]:
    """The conflicts of this machine."""
    return conflicts(
        json.loads(ip("-json", "-4", "route", "show", "table", "all", "type", "unicast"))
    )


def prepare(state: Path) -> None:
    """Forwarding on, the DNS address up, the CNI configuration written. Repeatable."""
    if not write_sysctl("net/ipv4/ip_forward", "1"):
        raise ClusterError("net.ipv4.ip_forward cannot be set to 1: pods need it")
    device = dns_device()
    if f" {settings.DNS_IP}/" not in ip("-o", "-4", "address", "show", "dev", device):
        ip("address", "add", f"{settings.DNS_IP}/32", "dev", device)
    ip("link", "set", device, "up")
    write_atomically(state / "cni" / "net.d" / "10-pods.conflist", json.dumps(cni_config(state)))


def dns_device() -> str:
    """The link that carries the DNS address: a dummy, or `lo` where the kernel has no dummies."""
    if not (Path("/sys/class/net") / settings.DNS_LINK).exists():
        try:
            ip("link", "add", settings.DNS_LINK, "type", "dummy")
        except ClusterError:
            return "lo"
    return settings.DNS_LINK


def cni_config(state: Path) -> dict[str, Any]:
    """The pod network.

    `ptp`, not `bridge`: traffic between pods of one node then passes the FORWARD chain, where
    kube-router filters it. Leases are kept in the state folder. Nothing is masqueraded: pods reach
    each other and this machine, not the world.
    """
    ipam = {
        "type": "host-local",
        "dataDir": str(state / "cni" / "leases"),
        "ranges": [[{"subnet": settings.POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": settings.CNI_NETWORK,
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def pod_links() -> list[str]:
    """Host ends of pods' links: veths with a route to a pod address."""
    routes: list[dict[str, Any]] = json.loads(ip("-json", "-4", "route", "show"))
    pods = Network(settings.POD_CIDR)
    found = {
        str(route["dev"])
        for route in routes
        if route.get("dst", "default") != "default"
        and str(route.get("dev", "")).startswith("veth")
        and Network(route["dst"], strict=False).subnet_of(pods)
    }
    return sorted(found)
