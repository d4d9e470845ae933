"""`kubeconfig`: print the path of the administrator's kubeconfig."""

from __future__ import annotations

import argparse
from pathlib import Path

from cluster import existing, pki, settings
from cluster.commands.options import Subparsers, add_state
from cluster.errors import ClusterError


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `kubeconfig` command."""
    parser = subparsers.add_parser(
        "kubeconfig", help="print the path of the kubeconfig", description=__doc__
    )
    add_state(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `kubeconfig` command."""
    print(locate(options.state))
    return 0


def locate(state: Path) -> Path:
    """The kubeconfig of the cluster that $CLUSTER names; ClusterError when there is none."""
    if settings.cluster_kind() != "embedded":
        return existing.kubeconfig(settings.cluster_kind())
    path = pki.Pki(state).kubeconfig(pki.ADMIN)
    if not path.exists():
        raise ClusterError("there is no cluster: python -m cluster up")
    return path
