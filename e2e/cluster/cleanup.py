"""Taking a node away: all that `up` or a pod made on this machine, then proof that it is gone.

One way for all cases: it works with everything running, with half of it dead, and after a kill of
the tool itself. Containers are killed, not asked: their objects are gone with etcd anyway.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cluster import cgroups, claim, components, containerd, leftovers, nodeconfig, progress
from cluster.errors import ClusterError
from cluster.processes import ProcessTable, identify, stop_all
from cluster.settings import RUNTIME_DIR

#: Everything but containerd, which is needed to remove containers.
ABOVE_CONTAINERD = (
    nodeconfig.KWOK,
    nodeconfig.KUBELET,
    nodeconfig.ROUTER,
    nodeconfig.PROXY,
    nodeconfig.DNS,
    components.SCHEDULER,
    components.CONTROLLER_MANAGER,
    components.APISERVER,
    components.ETCD,
)
#: Parts of the state folder that end with a cluster; images (containerd/) and logs stay.
VOLATILE = ("etcd", "kubelet", "cni", "run", "config", "kubeconfig", "pki", "bin")
VOLATILE_FILES = ("cluster.json", "ports.json")
GRACE = 2.0


def take_down(state: Path, before: claim.Before, *, purge: bool) -> list[str]:
    """Remove the node of a state folder; returns what was removed, raises when something stays."""
    removed: list[str] = []
    table = ProcessTable(state)
    stopped = table.stop(ABOVE_CONTAINERD, grace=GRACE)
    containers = _remove_containers(table)
    stopped += table.stop([nodeconfig.CONTAINERD], grace=GRACE)
    removed += [_counted(stopped, "components")] if stopped else []
    removed += [f"{containers} containers"] if containers else []
    for kind in leftovers.kinds(state, before):
        found = kind.find()
        if found:
            kind.remove(found)
            removed.append(_counted(found, kind.name))
    remaining = remaining_things(state, before)
    if remaining:
        raise ClusterError(f"still there after down: {'; '.join(remaining)}")
    forget_cluster(state)
    if purge:
        shutil.rmtree(state, ignore_errors=True)
        removed.append(f"{state}, images included")
    claim.release()
    _empty_runtime_dir()
    return removed


def remaining_things(state: Path, before: claim.Before) -> list[str]:
    """What of a cluster is on the machine, in words, by kind."""
    return [
        f"{kind.name}: {', '.join(found[:5])}"
        for kind in leftovers.kinds(state, before)
        if (found := kind.find())
    ]


def forget_cluster(state: Path) -> None:
    """Delete the cluster's data; images and logs stay."""
    for name in VOLATILE:
        shutil.rmtree(state / name, ignore_errors=True)
    for name in VOLATILE_FILES:
        (state / name).unlink(missing_ok=True)
    shutil.rmtree(state / "log" / "pods", ignore_errors=True)
    (state / "log" / "audit.log").unlink(missing_ok=True)


def _counted(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}"


def _remove_containers(table: ProcessTable) -> int:
    # Killed all at once here, containerd finds them dead: quicker than one by one.
    ids = [found for pid in cgroups.processes() if (found := identify("container", pid))]
    stop_all(ids, grace=0)
    if not table.running(nodeconfig.CONTAINERD):
        return 0  # the next `up` removes what containerd still remembers
    try:
        return containerd.remove_all_containers()
    except ClusterError as error:
        progress.say(f"containers are removed without containerd ({error})")
        return 0


def _empty_runtime_dir() -> None:
    for path in RUNTIME_DIR.iterdir():
        if path.name == "lock":
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
