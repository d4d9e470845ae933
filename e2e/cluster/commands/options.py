"""Options that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from cluster import settings

Subparsers = argparse._SubParsersAction


def add_install(parser: argparse.ArgumentParser) -> None:
    """`--install`."""
    parser.add_argument(
        "--install",
        action="store_true",
        help="as root on Debian or Ubuntu, apt-get what is missing",
    )


def add_state(parser: argparse.ArgumentParser) -> None:
    """`--state DIR`."""
    parser.add_argument(
        "--state",
        type=lambda text: Path(text).absolute(),
        default=settings.state_dir(),
        metavar="DIR",
        help="state folder (default: $KVSERVING_STATE, now %(default)s)",
    )
