"""One embedded node per machine: the lock of a working tool, and the claim of a running cluster.

The claim also keeps how the machine was before the cluster, which `down` needs to leave it so. It
lives in /run and counts for the current boot only.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import iptables, settings
from cluster.errors import ClusterError
from cluster.processes import ProcessTable, boot_id, write_atomically

#: Kernel settings that kubelet, kube-proxy or this tool change.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
#: Folders with a fixed name that containerd, kubelet or the CNI plugins make.
SHARED_FOLDERS = (
    "/var/log/containers",
    "/var/log/pods",
    "/var/lib/cni/results",
    "/var/lib/cni",
    "/run/containerd/s",
    "/run/containerd/fifo",
    "/run/containerd",
    "/opt/cni/bin",
    "/opt/cni",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
    "/usr/libexec/kubernetes",
)


@dataclass(frozen=True)
class Before:
    """The machine before the cluster: what `down` compares with and restores."""

    iptables: dict[str, str]
    sysctls: dict[str, str]
    links: list[str]
    ipsets: list[str]
    shim_sockets: list[str]
    folders: list[str]


@dataclass(frozen=True)
class Claim:
    """Which state folder holds the node of this machine."""

    state: str
    boot_id: str
    before: Before


@contextmanager
def lock(state: Path) -> Iterator[None]:
    """Hold the machine's lock while the tool changes the node; refuse politely when it is held."""
    settings.RUNTIME_DIR.mkdir(parents=True, exist_ok=True)
    path = settings.RUNTIME_DIR / "lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ClusterError(f"the cluster is being changed by {holder}: try later") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} for {state}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _path() -> Path:
    return settings.RUNTIME_DIR / "claim.json"


def read() -> Claim | None:
    """The claim of this boot, if there is one."""
    try:
        data = json.loads(_path().read_text())
        claim = Claim(data["state"], data["boot_id"], Before(**data["before"]))
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
    return claim if claim.boot_id == boot_id() else None


def require_free(state: Path) -> None:
    """Raise ClusterError when another state folder has the machine."""
    existing = read()
    if existing is not None and existing.state != str(state):
        raise ClusterError(_refusal(existing))


def take(state: Path) -> Claim:
    """Claim the machine for a state folder, or confirm the claim; refuse when another has it."""
    require_free(state)
    existing = read()
    if existing is None:
        existing = Claim(str(state), boot_id(), observe())
        write_atomically(_path(), json.dumps(asdict(existing)))
    return existing


def release() -> None:
    """Give the machine free."""
    _path().unlink(missing_ok=True)


def _refusal(claim: Claim) -> str:
    table = ProcessTable(Path(claim.state))
    alive = [process for process in table.all() if process.alive]
    what = (
        f"is running ({len(alive)} processes, {alive[0].name} is {alive[0].pid})"
        if alive
        else ("was not taken down")
    )
    return (
        f"one embedded cluster per machine: that of {claim.state} {what}; "
        f"first: KVSERVING_STATE={claim.state} python -m cluster down"
    )


def observe() -> Before:
    """The machine as it is now."""
    sockets = Path("/run/containerd/s")
    return Before(
        iptables={family: iptables.save(family) for family in iptables.FAMILIES},
        sysctls={name: value for name in SYSCTLS if (value := read_sysctl(name)) is not None},
        links=sorted(path.name for path in Path("/sys/class/net").iterdir()),
        ipsets=ipset_names(),
        shim_sockets=sorted(path.name for path in sockets.glob("*")),
        folders=[folder for folder in SHARED_FOLDERS if Path(folder).exists()],
    )


def read_sysctl(name: str) -> str | None:
    """The value of a kernel setting, None where the kernel lacks it."""
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


def write_sysctl(name: str, value: str) -> bool:
    """Set a kernel setting; False where the kernel refuses."""
    try:
        (Path("/proc/sys") / name).write_text(value)
    except OSError:
        return False
    return True


def ipset_names() -> list[str]:
    """Names of all ipsets."""
    done = subprocess.run(["ipset", "list", "-n"], capture_output=True, text=True, check=False)
    return sorted(done.stdout.split()) if done.returncode == 0 else []
