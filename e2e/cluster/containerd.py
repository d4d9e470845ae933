"""The node's containerd, asked through its own client `ctr`."""

from __future__ import annotations

import subprocess

from cluster import settings
from cluster.errors import ClusterError

TIMEOUT = 60.0


def command(*args: str) -> list[str]:
    """A ctr command line for the namespace that Kubernetes uses."""
    socket = str(settings.CONTAINERD_SOCKET)
    return ["ctr", "--address", socket, "--namespace", settings.IMAGE_NAMESPACE, *args]


def ctr(*args: str, timeout: float = TIMEOUT) -> str:
    """Run ctr and return its output; ClusterError with its message when it fails."""
    try:
        done = subprocess.run(
            command(*args), capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"ctr {' '.join(args[:2])}: no answer in {timeout:.0f} s") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"ctr {' '.join(args[:2])}: {reason}")
    return done.stdout


def ready() -> bool:
    """Whether containerd answers."""
    if not settings.CONTAINERD_SOCKET.exists():
        return False
    try:
        ctr("version", timeout=5)
    except ClusterError:
        return False
    return True


def remove_all_containers() -> int:
    """Kill and remove every container of the namespace; returns how many there were."""
    tasks = ctr("tasks", "ls", "-q").split()
    if tasks:
        _tolerate("tasks", "rm", "--force", *tasks)
    containers = ctr("containers", "ls", "-q").split()
    if containers:
        _tolerate("containers", "rm", *containers)
    return len(containers)


def _tolerate(*args: str) -> None:
    # One that ended by itself meanwhile makes ctr fail after it has dealt with the others.
    try:
        ctr(*args)
    except ClusterError as error:
        if "not found" not in str(error):
            raise
