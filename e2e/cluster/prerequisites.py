"""What a machine needs before a cluster can run on it: each check is answered in one line."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from cluster import cgroups, network, packages, ports, progress, settings
from cluster.claim import read_sysctl
from cluster.errors import ClusterError
from cluster.nodeconfig import KUBELET
from cluster.processes import MARKER, ProcessTable, find_by_environment
from cluster.toolchain import find_go

GIB = 1 << 30
#: With everything running the node takes about 2 GiB; engines come on top.
LEAST_MEMORY = 3 * GIB
LEAST_DISK = 5 * GIB
#: Go's module and build caches, the binaries, and room for the linker.
LEAST_DISK_FOR_BUILDS = 12 * GIB
GO = "go"


@dataclass(frozen=True)
class Finding:
    """The answer to one check."""

    name: str
    problem: str = ""  # empty: fine
    remedy: str = ""
    package: str = ""  # a Debian package that cures it; GO for the toolchain

    @property
    def line(self) -> str:
        """The one line for people."""
        if not self.problem:
            return f"ok       {self.name}"
        return f"MISSING  {self.name}: {self.problem}{f'; {self.remedy}' if self.remedy else ''}"


def commands_for_control_plane() -> dict[str, str]:
    """Programs of a control plane, and the Debian package of each."""
    return {"openssl": "openssl", "setpriv": "util-linux"}


def commands_for_build() -> dict[str, str]:
    """Programs that builds need."""
    return {"gcc": "gcc"}


def commands_for_node() -> dict[str, str]:
    """Programs of a node."""
    return {
        **commands_for_control_plane(),
        "gcc": "gcc",
        "containerd": "containerd",
        "ctr": "containerd",
        "runc": "runc",
        "iptables": "iptables",
        "nft": "nftables",
        "ipset": "ipset",
        "conntrack": "conntrack",
        "socat": "socat",
        "ip": "iproute2",
        "umount": "mount",
    }


def check(*, node: bool, building: bool, state: Path) -> list[Finding]:
    """All checks for a node or a control plane, with those of the builds if there are any to do."""
    commands = commands_for_node() if node else commands_for_control_plane()
    found: list[Finding] = []
    if node:
        found += [
            architecture(platform.machine()),
            _root(),
            *(_machine(state) if os.geteuid() == 0 else []),
        ]
    if building:
        commands |= commands_for_build()
        found += [_go(), _certificates()]
    found += [_command(name, package) for name, package in sorted(commands.items())]
    if node:
        found.append(_cni_plugins())
    if node or building:
        found.append(_static_libc())
    found.append(_disk(state, LEAST_DISK_FOR_BUILDS if building else LEAST_DISK))
    return found


def require(*, node: bool, building: bool, state: Path, install: bool) -> None:
    """Raise ClusterError unless everything is there; with `install`, get what packages can give."""
    problems = _problems(check(node=node, building=building, state=state))
    if problems and install and packages.can_install():
        wanted = sorted({item.package for item in problems if item.package not in ("", GO)})
        if wanted:
            packages.install(wanted)
        if any(item.package == GO for item in problems):
            packages.install_go()
        problems = _problems(check(node=node, building=building, state=state))
    if not problems:
        return
    for item in problems:
        progress.say(item.line)
    raise ClusterError(advice(problems))


def _problems(found: Iterable[Finding]) -> list[Finding]:
    return [item for item in found if item.problem]


def advice(problems: list[Finding]) -> str:
    """The closing line: what to install, or that the lines above say it."""
    names = sorted({item.package for item in problems if item.package not in ("", GO)})
    parts = []
    if names:
        parts.append(f"apt-get install --no-install-recommends {' '.join(names)}")
    if any(item.package == GO for item in problems):
        parts.append("install Go 1.21 or newer")
    if not parts:
        return "this machine cannot hold the cluster: see the lines above"
    return f"missing: {'; '.join(parts)} (or run with --install)"


def architecture(machine: str) -> Finding:
    """Images and stand-in libraries are for x86-64 alone: better said before compiling."""
    if machine == "x86_64":
        return Finding("architecture")
    return Finding("architecture", f"{machine}, but the images are made for x86-64")


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root")
    return Finding("root", "the node needs root", "run as root")


def _command(name: str, package: str) -> Finding:
    if shutil.which(name):
        return Finding(name)
    return Finding(name, "not found", f"package {package}", package)


def _cni_plugins() -> Finding:
    wanted = ("ptp", "host-local", "portmap", "loopback")
    missing = [name for name in wanted if not (settings.CNI_BIN_DIR / name).exists()]
    package = "containernetworking-plugins"
    if not missing:
        return Finding("CNI plugins")
    problem = f"{', '.join(missing)} not in {settings.CNI_BIN_DIR}"
    return Finding("CNI plugins", problem, f"package {package}", package)


def _static_libc() -> Finding:
    if list(Path("/usr/lib").glob("**/libc.a")):
        return Finding("libc for static programs")
    return Finding("libc for static programs", "no libc.a", "package libc6-dev", "libc6-dev")


def _certificates() -> Finding:
    name = "certificates of public authorities"
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        return Finding(name)
    return Finding(name, "not found", "package ca-certificates", "ca-certificates")


def _go() -> Finding:
    if find_go() is not None:
        return Finding("Go")
    return Finding("Go", "no Go 1.21 or newer found", "", GO)


def _machine(state: Path) -> list[Finding]:
    checks: list[tuple[str, Callable[[], str]]] = [
        ("cgroups", lambda: ", ".join(f"no controller {name}" for name in cgroups.missing())),
        ("overlay file system", lambda: overlay_problem(state)),
        ("ip_forward", _forwarding_problem),
        ("firewall", firewall_problem),
        ("networks", _network_problem),
        ("ports", lambda: port_problem(state)),
        ("memory", lambda: _memory_problem(state)),
        ("state folder", lambda: _path_problem(state)),
    ]
    found = []
    for name, ask in checks:
        try:
            problem = ask()
        except (ClusterError, OSError) as error:
            problem = str(error)
        found.append(Finding(name, problem))
    return found


def overlay_problem(state: Path) -> str:
    """Why no overlay can be mounted in the state folder, "" when one can: it is tried."""
    place = _nearest_folder(state)  # on the same file system, and `check` makes no folder
    with tempfile.TemporaryDirectory(dir=place, prefix=".kvserving-overlay-") as folder:
        parts = {name: f"{folder}/{name}" for name in ("lower", "upper", "work", "merged")}
        for path in parts.values():
            Path(path).mkdir()
        options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**parts)
        command = ["mount", "-t", "overlay", "overlay", "-o", options, parts["merged"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            subprocess.run(["umount", parts["merged"]], capture_output=True, check=False)
            return ""
        reason = (done.stderr.strip().splitlines() or ["refused"])[-1]
        return f"cannot be mounted in {state}: {reason}"


def _network_problem() -> str:
    # Without the command its own line says so, and the check comes after its installation.
    return "; ".join(network.route_conflicts()) if shutil.which("ip") else ""


def _forwarding_problem() -> str:
    value = read_sysctl("net/ipv4/ip_forward")
    if value == "1" or os.access("/proc/sys/net/ipv4/ip_forward", os.W_OK):
        return ""
    return "net.ipv4.ip_forward is 0 and read-only"


def firewall_problem() -> str:
    """What the kernel refuses of iptables and ipset; for a missing program its own line speaks."""
    for command in (["iptables-save"], ["ipset", "list", "-n"]):
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["refused"])[-1]
            return f"{command[0]} does not work here: {reason}"
    return ""


def fixed_ports() -> list[int]:
    """Every TCP port that the node's programs listen on."""
    plane = settings.Ports()
    return [
        *(getattr(plane, item.name) for item in fields(plane)),
        settings.KUBELET_PORT,
        settings.KUBELET_HEALTH_PORT,
        settings.PROXY_HEALTH_PORT,
        settings.PROXY_METRICS_PORT,
        settings.ROUTER_HEALTH_PORT,
        settings.DNS_READY_PORT,
    ]


def port_problem(state: Path) -> str:
    """Ports that others hold; those of this state folder's own processes are fine."""
    own = {f"({process.pid})" for process in find_by_environment(MARKER, str(state))}
    taken = ports.listeners(fixed_ports())
    others = {port: who for port, who in taken.items() if who.split()[-1] not in own}
    return ", ".join(f"{port} is taken by {who}" for port, who in sorted(others.items()))


def _memory_problem(state: Path) -> str:
    if ProcessTable(state).running(KUBELET):
        return ""  # the cluster is up: what is missing is what it uses
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            if available < LEAST_MEMORY:
                return f"{available / GIB:.1f} GiB available, {LEAST_MEMORY / GIB:.0f} needed"
    return ""


def _path_problem(state: Path) -> str:
    if len(str(state)) > settings.MAX_STATE_PATH:
        longest = settings.MAX_STATE_PATH
        return f"{state} is longer than {longest} characters: set KVSERVING_STATE to a shorter one"
    return ""


def _nearest_folder(path: Path) -> Path:
    """The path, or what of it exists already."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _disk(state: Path, least: int) -> Finding:
    folder = _nearest_folder(state)
    free = shutil.disk_usage(folder).free
    problem = "" if free >= least else f"{free / GIB:.1f} GiB free, {least / GIB:.0f} needed"
    return Finding(f"disk ({folder})", problem)
