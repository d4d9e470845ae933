"""What a cluster leaves on a machine, by kind: how it is found, and how it is removed.

`down` removes each kind in the order of `kinds`, then asks each again: nothing may be found.
Everything is told apart from others' by our state folder, our names, or by not having been there
before the cluster.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import cgroups, iptables, network, settings
from cluster.claim import SHARED_FOLDERS, Before, ipset_names, read_sysctl, write_sysctl
from cluster.errors import ClusterError
from cluster.processes import (
    MARKER,
    Process,
    find_by_argument,
    find_by_environment,
    identify,
    stop_all,
)

OUR_LINKS = (settings.DNS_LINK, "kube-bridge", "kube-dummy-if", "kube-ipvs0")
SHIM_SOCKETS = Path("/run/containerd/s")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
CNI_RESULTS = Path("/var/lib/cni/results")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


@dataclass(frozen=True)
class Kind:
    """One kind of leftover."""

    name: str
    find: Callable[[], list[str]]
    remove: Callable[[list[str]], None]


def kinds(state: Path, before: Before) -> list[Kind]:
    """Every kind, in the order of removal: users of a thing go before the thing."""

    def drop_chains(_: list[str]) -> None:
        iptables.remove_ours(before.iptables)

    return [
        Kind("processes", lambda: _names(_processes(state)), lambda _: _kill(_processes(state))),
        Kind("container processes", _container_pids, _kill_container_pids),
        Kind("mounts", lambda: mounts_under(state, settings.RUNTIME_DIR), _unmount),
        Kind("pod links", network.pod_links, _delete_links),
        Kind("links", lambda: _links(before), _delete_links),
        Kind("addresses", _addresses, _delete_addresses),
        Kind("firewall chains", lambda: iptables.find_ours(before.iptables), drop_chains),
        Kind("ipsets", lambda: _ipsets(before), _destroy_ipsets),
        Kind("cgroups", lambda: [str(path) for path in cgroups.roots()], lambda _: _cgroups()),
        Kind("kernel settings", lambda: _sysctls(before), lambda n: _restore_sysctls(before, n)),
        Kind("files", lambda: _files(state, before), _delete_files),
        Kind("folders", lambda: _folders(before), lambda _: _delete_folders(before)),
    ]


def _processes(state: Path) -> list[Process]:
    marked = find_by_environment(MARKER, str(state))
    shims = find_by_argument(str(settings.CONTAINERD_SOCKET))
    return list({process.pid: process for process in (*marked, *shims)}.values())


def _names(processes: Sequence[Process]) -> list[str]:
    return [f"{process.name} ({process.pid})" for process in processes]


def _kill(processes: Sequence[Process]) -> None:
    stop_all(processes, grace=0)


def _container_pids() -> list[str]:
    return [str(pid) for pid in cgroups.processes()]


def _kill_container_pids(pids: list[str]) -> None:
    _kill([found for pid in pids if (found := identify("container", int(pid))) is not None])


def mounts_under(*folders: Path) -> list[str]:
    """Mount points in or under the folders, the deepest and latest first."""
    points = mount_points(Path("/proc/self/mounts").read_bytes())
    return [
        point
        for point in reversed(points)
        if any(Path(point).is_relative_to(folder) for folder in folders)
    ]


def mount_points(mounts: bytes) -> list[str]:
    """The mount points of a mount table; in it blanks and backslashes stand as octal numbers."""

    def character(number: re.Match[bytes]) -> bytes:
        return bytes([int(number[1], 8)])

    points = [line.split(b" ")[1] for line in mounts.splitlines()]
    return [os.fsdecode(re.sub(rb"\\([0-7]{3})", character, point)) for point in points]


def _unmount(points: list[str]) -> None:
    for point in points:
        subprocess.run(["umount", "-l", point], capture_output=True, check=False)


def _links(before: Before) -> list[str]:
    there = [link for link in OUR_LINKS if (Path("/sys/class/net") / link).exists()]
    return [link for link in there if link not in before.links]


def _delete_links(links: list[str]) -> None:
    for link in links:
        with contextlib.suppress(ClusterError):  # it went with its network namespace
            network.ip("link", "delete", link)


def _addresses() -> list[str]:
    shown = network.ip("-o", "-4", "address", "show").splitlines()
    return [line.split()[1] for line in shown if line.split()[3] == f"{settings.DNS_IP}/32"]


def _delete_addresses(devices: list[str]) -> None:
    for device in devices:
        network.ip("address", "delete", f"{settings.DNS_IP}/32", "dev", device)


def _ipsets(before: Before) -> list[str]:
    ours = [name for name in ipset_names() if name.startswith(("KUBE-", "inet6:KUBE-"))]
    return [name for name in ours if name not in before.ipsets]


def _destroy_ipsets(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ipset", "destroy", name], capture_output=True, check=False)


def _cgroups() -> None:
    cgroups.remove()


def _sysctls(before: Before) -> list[str]:
    return [name for name, value in before.sysctls.items() if read_sysctl(name) != value]


def _restore_sysctls(before: Before, names: list[str]) -> None:
    for name in names:
        write_sysctl(name, before.sysctls[name])


def _files(state: Path, before: Before) -> list[str]:
    # One that is bound is that of a living shim, so of another containerd: ours are dead by now.
    bound = bound_sockets()
    sockets = [
        path
        for path in SHIM_SOCKETS.glob("*")
        if path.name not in before.shim_sockets and str(path) not in bound
    ]
    # A cached result names the network namespace it is about.
    namespaces = str(settings.CONTAINERD_STATE).encode()
    results = [
        path for path in CNI_RESULTS.glob("*") if path.is_file() and namespaces in path.read_bytes()
    ]
    links = [
        path
        for path in CONTAINER_LOG_LINKS.glob("*")
        if path.is_symlink() and path.readlink().is_relative_to(state)
    ]
    plugins = [] if str(DEVICE_PLUGINS) in before.folders else list(DEVICE_PLUGINS.glob("*"))
    return [str(path) for path in (*sockets, *results, *links, *plugins)]


def bound_sockets() -> frozenset[str]:
    """Paths of the Unix sockets that living processes hold."""
    lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    rows = (line.split(maxsplit=7) for line in lines)
    return frozenset(row[7] for row in rows if len(row) == 8)


def _delete_files(paths: list[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _new_folders(before: Before) -> list[Path]:
    return [Path(folder) for folder in SHARED_FOLDERS if folder not in before.folders]


def _folders(before: Before) -> list[str]:
    """Folders at fixed places that were not there before and hold nothing now."""
    there = [path for path in _new_folders(before) if path.is_dir()]
    return [str(path) for path in there if not any(path.iterdir())]


def _delete_folders(before: Before) -> None:
    for path in _new_folders(before):  # children come before their parents
        with contextlib.suppress(OSError):
            path.rmdir()
