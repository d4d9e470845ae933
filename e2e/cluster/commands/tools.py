"""`tools`: where kubectl, helm and the kubeconfig of the cluster are, for scripts."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from cluster import existing, settings
from cluster.commands import kubeconfig
from cluster.commands.options import Subparsers, add_state
from cluster.errors import ClusterError

NAMES = ("kubectl", "helm")


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `tools` command."""
    parser = subparsers.add_parser(
        "tools", help="print where kubectl, helm and the kubeconfig are", description=__doc__
    )
    add_state(parser)
    parser.add_argument(
        "-o", dest="output", choices=("text", "json"), default="text", help="output format"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `tools` command."""
    found = {name: str(locate(options.state, name)) for name in NAMES}
    found["kubeconfig"] = str(kubeconfig.locate(options.state))
    if options.output == "json":
        print(json.dumps(found))
    else:
        for name, path in found.items():
            print(f"{name:<12}{path}")
    return 0


def locate(state: Path, name: str) -> Path:
    """The program that belongs to the cluster; with $CLUSTER set, the user's own."""
    if settings.cluster_kind() != "embedded":
        return existing.program(name)
    path = state / "bin" / name
    if not path.exists():
        on_path = shutil.which(name)
        raise ClusterError(
            f"{name} is not in {path.parent}: python -m cluster up"
            + (f" (there is {on_path}, of unknown version)" if on_path else "")
        )
    return path
