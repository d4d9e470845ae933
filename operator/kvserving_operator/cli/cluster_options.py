"""The flags that name a cluster; apart from ``cluster``, whose imports cost half a second."""

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The flags of every command that may ask a cluster."""
    group = parser.add_argument_group("which cluster")
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="default: KUBECONFIG, else ~/.kube/config"
    )
    group.add_argument("--context", metavar="NAME", help="default: the kubeconfig's current one")
