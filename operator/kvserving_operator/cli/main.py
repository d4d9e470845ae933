"""The program ``kvserving``: its commands, and one clear line instead of a traceback.

Exit statuses: 0 all is well; 1 a manifest has a fault (``validate``, ``render``) or differs from
the cluster (``diff``), a request failed (``replay``); 2 the command could not be carried out.
"""

import argparse
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import Final, Never

from kvserving_operator import __version__
from kvserving_operator.cli.errors import ClusterError, UsageError

FAILED: Final = 2
DEFECT: Final = 70
"""EX_SOFTWARE of sysexits.h."""
DEBUG: Final = "KVSERVING_DEBUG"


def run() -> None:
    """Entry point of the program."""
    logging.disable(logging.CRITICAL)  # libraries that log to a terminal; what matters is raised
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Carry out one command; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        status = _carried_out(arguments)
        sys.stdout.flush()
    except (UsageError, ClusterError) as error:
        status = _failed(str(error))
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader has gone, as in `kvserving render … | head`; nobody is left to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except Exception as error:
        # A user gets a line, never a traceback.
        if os.environ.get(DEBUG):
            raise
        status = _failed(
            f"{type(error).__name__}: {error} (a defect of this program; {DEBUG}=1 shows where)",
            status=DEFECT,
        )
    return status


def _failed(line: str, status: int = FAILED) -> int:
    sys.stderr.write(f"kvserving: {' '.join(line.split())}\n")
    return status


class _Parser(argparse.ArgumentParser):
    """Says a mistake in one line, without all flags of the command before it."""

    def error(self, message: str) -> Never:
        """End with what is wrong, and where to read on."""
        self.exit(FAILED, f"{self.prog}: {message}; `{self.prog} --help` shows what there is\n")


def _carried_out(arguments: Sequence[str]) -> int:
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        _refuse(options.command, unknown[0])
    return int(options.run(options))


def _refuse(command: argparse.ArgumentParser, argument: str) -> Never:
    """Name the argument that the command does not know, and the flags that are written like it."""
    flags = re.findall(r"--[a-z][a-z-]*", command.format_usage())
    close = get_close_matches(argument.partition("=")[0], flags, n=2)
    meant = f", did you mean {' or '.join(close)}?" if close else ""
    command.error(f"does not know {argument!r}{meant}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kvserving",
        description="Checks, renders and compares KVServing objects with the operator's own code; "
        "sizes a\nstack, simulates what it would serve, and replays traces against what does.",
        epilog="`kvserving COMMAND --help` shows flags and examples of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _commands():
        command = commands.add_parser(
            module.NAME,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, command=command)
    return parser


def _commands() -> Sequence[ModuleType]:
    try:
        from kvserving_operator.cli import (  # noqa: PLC0415 - may be missing
            diff,
            plan,
            render,
            replay,
            simulate,
            validate,
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the package {error.name} is missing: install kvserving-operator[cli]"
        ) from error
    return (render, validate, diff, plan, simulate, replay)


if __name__ == "__main__":
    run()
