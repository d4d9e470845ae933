"""`check`: every prerequisite of the cluster on this machine, one line each; changes nothing."""

from __future__ import annotations

import argparse

from cluster import binaries, prerequisites
from cluster.commands.options import Subparsers, add_state


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the `check` command."""
    parser = subparsers.add_parser(
        "check", help="check this machine's prerequisites", description=__doc__
    )
    add_state(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the `check` command."""
    building = not all(binaries.is_built(program) for program in binaries.NODE)
    found = prerequisites.check(node=True, building=building, state=options.state)
    for item in found:
        print(item.line)
    problems = [item for item in found if item.problem]
    if problems:
        print(prerequisites.advice(problems))
    return 1 if problems else 0
