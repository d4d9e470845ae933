"""`prepare`: check the prerequisites and build the programs, and start nothing."""

from __future__ import annotations

import argparse

from cluster import binaries, debian, prerequisites
from cluster.commands.options import Subparsers, add_install, add_state


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `prepare` command."""
    parser = subparsers.add_parser(
        "prepare", help="build the programs, start nothing", description=__doc__
    )
    add_state(parser)
    add_install(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `prepare` command."""
    prerequisites.require(
        node=True,
        building=not all(binaries.is_built(program) for program in binaries.EVERY),
        state=options.state,
        install=options.install,
    )
    binaries.ensure(binaries.EVERY)
    for package in debian.EVERY:
        debian.ensure(package)
    return 0
