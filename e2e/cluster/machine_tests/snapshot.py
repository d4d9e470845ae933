"""A picture of the machine, to compare before and after a cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cluster import claim

PROGRAMS = re.compile(r"containerd|kube|etcd|coredns|/pause")
FOLDERS = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods")


def output(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def rules(family: str) -> list[str]:
    lines = (re.sub(r"\[\d+:\d+\]", "", line) for line in output(f"{family}-save"))
    return [line for line in lines if not line.startswith("#")]


def take(own: Path) -> dict[str, list[str]]:
    """All that a cluster touches; `own` is the state folder, whose mounts and processes count."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    marks = (str(own), "/run/kvserving", "netns")
    return {
        "iptables": rules("iptables"),
        "ip6tables": rules("ip6tables"),
        "nft": output("nft", "list", "tables"),
        "links": [line.split(": ")[1] for line in output("ip", "-o", "link")],
        "addresses": [" ".join(line.split()[1:4]) for line in output("ip", "-o", "address")],
        "routes": output("ip", "route"),
        "namespaces": output("ip", "netns"),
        "ipsets": output("ipset", "list", "-n"),
        "mounts": [line for line in mounts if any(mark in line for mark in marks)],
        "processes": [
            line
            for line in output("ps", "-eo", "args")
            if any(mark in line for mark in marks) and PROGRAMS.search(line)
        ],
        "sysctls": [f"{name}={claim.read_sysctl(name)}" for name in claim.SYSCTLS],
        "folders": [str(p) for folder in FOLDERS for p in sorted(Path(folder).rglob("*"))],
        "exist": [folder for folder in claim.SHARED_FOLDERS if Path(folder).exists()],
        "cgroups": [str(p) for p in sorted(Path("/sys/fs/cgroup").glob("*/kvserving"))],
    }
