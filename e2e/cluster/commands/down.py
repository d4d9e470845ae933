"""`down`: take the cluster away, remove all it left on the machine, and prove that nothing is left.

Images stay in the state folder for the next `up`; `--purge` deletes them too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

from cluster import claim, cleanup, existing, progress, settings
from cluster.commands.options import Subparsers, add_state
from cluster.controlplane import ControlPlane
from cluster.errors import ClusterError
from cluster.node import read_record
from cluster.processes import boot_id, stop_all


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `down` command."""
    parser = subparsers.add_parser(
        "down", help="take the cluster away and clean up", description=__doc__
    )
    add_state(parser)
    parser.add_argument("--purge", action="store_true", help="delete images and logs too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `down` command."""
    if settings.cluster_kind() != "embedded":
        return existing.down(settings.cluster_kind())
    start = time.monotonic()
    state: Path = options.state
    record = read_record(state)
    if record is not None and record.mode == "control-plane":
        removed = control_plane_down(state, purge=options.purge)
    else:
        removed = node_down(state, purge=options.purge)
    for line in removed:
        progress.say(f"removed {line}")
    progress.say(f"down in {progress.duration(time.monotonic() - start)}: nothing is left")
    return 0


def node_down(state: Path, *, purge: bool) -> list[str]:
    """Take a node away; returns what was removed."""
    if os.geteuid() != 0:
        raise ClusterError("the node was started by root: run as root")
    with claim.lock(state):
        held = claim.read()
        if held is not None and held.state != str(state):
            raise ClusterError(
                f"the embedded cluster of this machine is that of {held.state}: "
                f"KVSERVING_STATE={held.state} python -m cluster down"
            )
        record = read_record(state)
        if held is None and record is not None and record.boot_id == boot_id():
            progress.say(
                f"{settings.RUNTIME_DIR}/claim.json is gone, and with it how the machine was: "
                "firewall chains (KUBE-*, CNI-*), ipsets and kernel settings stay as they are "
                "until it is restarted"
            )
        before = held.before if held is not None else claim.observe()
        return cleanup.take_down(state, before, purge=purge)


def control_plane_down(state: Path, *, purge: bool) -> list[str]:
    """Take a control plane away; returns what was removed."""
    plane = ControlPlane(state, detached=True)
    names = [process.name for process in plane.table.all() if process.alive]
    plane.stop()
    stop_all(plane.table.orphans(), grace=0)  # started by a tool that died before it could say so
    cleanup.forget_cluster(state)
    if purge:
        shutil.rmtree(state, ignore_errors=True)
    return names
