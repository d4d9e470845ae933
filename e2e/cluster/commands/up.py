"""`up`: bring the cluster up, or repair it; when all runs, it says so and changes nothing."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from cluster import binaries, claim, cleanup, existing, prerequisites, progress, settings
from cluster.binaries import Program
from cluster.commands.options import Subparsers, add_install, add_state
from cluster.controlplane import ControlPlane
from cluster.errors import ClusterError
from cluster.node import Node, Record, read_record, write_record
from cluster.processes import boot_id

EXTRAS = {"kwok": binaries.KWOK}


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `up` command."""
    parser = subparsers.add_parser(
        "up", help="start the cluster, or repair it", description=__doc__
    )
    add_state(parser)
    add_install(parser)
    parser.add_argument(
        "--control-plane-only",
        action="store_true",
        help="etcd, API server and controllers on free ports; no node, no root",
    )
    parser.add_argument(
        "--with",
        dest="extras",
        action="append",
        choices=sorted(EXTRAS),
        default=[],
        help="also run this; kwok plays nodes annotated kwok.x-k8s.io/node=fake",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `up` command."""
    if settings.cluster_kind() != "embedded" and not options.control_plane_only:
        return existing.up(settings.cluster_kind())
    start = time.monotonic()
    if options.control_plane_only:
        started, kubeconfig = control_plane_up(options.state, install=options.install)
    else:
        started, kubeconfig = node_up(options.state, extras=options.extras, install=options.install)
    took = progress.duration(time.monotonic() - start)
    if started:
        progress.say(f"ready in {took}: started {', '.join(started)}")
    else:
        progress.say(f"already up, nothing to do ({took})")
    progress.say(f"kubeconfig: {kubeconfig}")
    return 0


def node_up(state: Path, *, extras: list[str], install: bool) -> tuple[list[str], Path]:
    """Bring the node up; returns the names of what was started and the kubeconfig."""
    _refuse_other_mode(state, "node")
    claim.require_free(state)
    extras = sorted({*extras, *_running_extras(state)})
    programs = (*binaries.NODE, *(EXTRAS[name] for name in extras))
    _require(programs, node=True, state=state, install=install)
    paths = binaries.ensure(programs)
    with claim.lock(state):
        claim.take(state)
        node = Node(state, extras=extras)
        return node.up(paths), node.plane.kubeconfig


def control_plane_up(state: Path, *, install: bool) -> tuple[list[str], Path]:
    """Bring a control plane up; returns the names of what was started and the kubeconfig."""
    _refuse_other_mode(state, "control-plane")
    _require(binaries.CONTROL_PLANE, node=False, state=state, install=install)
    paths = binaries.ensure(binaries.CONTROL_PLANE)
    record = read_record(state)
    if record is not None and record.boot_id != boot_id():
        progress.say("the machine was restarted: a new control plane")
        cleanup.forget_cluster(state)
    binaries.link_all(paths, state / "bin")
    write_record(state, Record("control-plane", boot_id()))
    plane = ControlPlane(state, detached=True)
    return plane.start(), plane.kubeconfig


def _running_extras(state: Path) -> list[str]:
    record = read_record(state)
    return record.extras if record is not None and record.boot_id == boot_id() else []


def _refuse_other_mode(state: Path, mode: str) -> None:
    record = read_record(state)
    if record is not None and record.mode != mode and record.boot_id == boot_id():
        raise ClusterError(
            f"{state} holds a {record.mode}: take it down first, or choose another --state"
        )


def _require(programs: tuple[Program, ...], *, node: bool, state: Path, install: bool) -> None:
    building = not all(binaries.is_built(program) for program in programs)
    prerequisites.require(node=node, building=building, state=state, install=install)
