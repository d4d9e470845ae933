"""The command line of the embedded cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cluster import build
from cluster.commands import check, down, kubeconfig, load_image, prepare, status, tools, up
from cluster.errors import ClusterError

EPILOG = """\
environment:
  KVSERVING_CACHE  what is expensive to make: binaries, images (default ~/.cache/kvserving)
  KVSERVING_STATE  the cluster's state folder (default $KVSERVING_CACHE/cluster)
  CLUSTER          embedded (default), kind, or current: the cluster that kubectl talks to now
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="python -m cluster",
        description="A real one-node Kubernetes on this machine, without Docker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (up, down, status, load_image, build, kubeconfig, tools, check, prepare):
        module.add_parser(subparsers)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; failures are one line on standard error and exit code 1."""
    options = parser().parse_args(arguments)
    # A root shell that came by `su` may lack the folders of iptables, ipset and runc.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    try:
        code: int = options.run(options)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return code
