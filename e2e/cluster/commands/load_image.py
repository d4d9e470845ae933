"""`load-image`: put container images into the cluster; those that are there already are skipped.

An archive is an OCI layout (folder or tar), a docker archive, or `-` for standard input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cluster import existing, images, progress, settings
from cluster.commands.options import Subparsers
from cluster.errors import ClusterError


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `load-image` command."""
    parser = subparsers.add_parser(
        "load-image", help="put images into the cluster", description=__doc__
    )
    parser.add_argument("archives", nargs="+", metavar="ARCHIVE")
    parser.add_argument("--name", default="", help="full name for the image of a nameless archive")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `load-image` command."""
    if settings.cluster_kind() != "embedded":
        return existing.load(settings.cluster_kind(), options.archives)
    for source in options.archives:
        if source == "-":
            images.load_stream(sys.stdin.buffer)
            continue
        if not Path(source).exists():
            raise ClusterError(f"{source}: no such file or folder")
        for image in images.load([Path(source)], name=options.name):
            word = "loaded" if image.loaded else "there already"
            progress.say(f"{image.name} {image.digest[:19]}: {word}")
    return 0
