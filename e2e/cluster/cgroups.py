"""The pods' cgroups: one root of our own in every hierarchy, cgroup v1 or v2."""

from __future__ import annotations

import contextlib
from pathlib import Path

from cluster import settings
from cluster.errors import ClusterError

MOUNT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb")


def unified() -> bool:
    """Whether this machine has cgroup v2 alone."""
    return (MOUNT / "cgroup.controllers").exists()


def missing() -> list[str]:
    """Controllers that kubelet needs and this machine lacks."""
    if unified():
        have = (MOUNT / "cgroup.controllers").read_text().split()
        return [name for name in ("cpu", "memory", "pids") if name not in have]
    return [name for name in V1_CONTROLLERS if not (MOUNT / name).is_dir()]


def _hierarchies() -> list[Path]:
    if unified():
        return [MOUNT]
    return [path for path in sorted(MOUNT.iterdir()) if path.is_dir() and not path.is_symlink()]


def roots() -> list[Path]:
    """Our cgroup in every hierarchy where it exists."""
    found = [path / settings.CGROUP_ROOT for path in _hierarchies()]
    return [path for path in found if path.is_dir()]


def create() -> None:
    """Make our root; kubelet insists on finding it with all its controllers."""
    if unified():
        have = (MOUNT / "cgroup.controllers").read_text().split()
        for name in (name for name in V2_CONTROLLERS if name in have):
            with contextlib.suppress(OSError):
                (MOUNT / "cgroup.subtree_control").write_text(f"+{name}")
    for path in _hierarchies():
        try:
            (path / settings.CGROUP_ROOT).mkdir(exist_ok=True)
        except OSError as error:
            if path.name in V1_CONTROLLERS or unified():
                raise ClusterError(f"cgroup {path} is not writable: {error.strerror}") from error


def processes() -> list[int]:
    """Ids of all processes in our cgroups: those of containers."""
    found: set[int] = set()
    for root in roots():
        for file in root.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                found.update(int(line) for line in file.read_text().split())
    return sorted(found)


def remove() -> int:
    """Remove our cgroups, the deepest first; returns how many there were."""
    removed = 0
    for root in roots():
        folders = [path for path in root.rglob("*") if path.is_dir()]
        for folder in [*sorted(folders, key=lambda path: len(path.parts), reverse=True), root]:
            with contextlib.suppress(OSError):
                folder.rmdir()
                removed += 1
    return removed
