"""The commands of the agent: `serve` (beside the engine) and `wait-for-tier` (before it)."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from kvserving_agent import footprint, listening, log, settings, supervisor
from kvserving_agent.supervisor import Life

T = TypeVar("T")

_log = logging.getLogger(__name__)


def run() -> None:
    """Entry point of the `kvserving-agent` command."""
    status = main(sys.argv[1:])
    logging.shutdown()
    # Not sys.exit: it would wait for threads that still look up a name.
    os._exit(status)


def main(argv: Sequence[str]) -> int:
    """Run one command; the exit status (2: wrong arguments or settings)."""
    arguments = _parser().parse_args(argv)
    log.configure()
    if arguments.command == "wait-for-tier":
        return _wait_for_tier(arguments)
    try:
        config = settings.from_env(os.environ)
        sockets = listening.sockets(config.host, config.port)
    except (settings.SettingsError, OSError) as error:
        _log.error("cannot start", extra={"reason": str(error)})
        return 2 if isinstance(error, settings.SettingsError) else 1
    serving = supervisor.Supervisor(lambda life: _serve(config, life), sockets, footprint.most())
    return serving.run()


def _serve(config: settings.Settings, life: Life) -> int:
    # Here and not above: the HTTP library takes half a second and 30 MiB that nobody else needs.
    import asyncio  # noqa: PLC0415

    from kvserving_agent.serve import serve  # noqa: PLC0415

    return asyncio.run(serve(config, life))


def _wait_for_tier(arguments: argparse.Namespace) -> int:
    from kvserving_agent import tier  # noqa: PLC0415 - asyncio, which the supervisor does without

    tier.run(arguments.addresses, arguments.timeout, tls=arguments.tls)
    return 0


def _address(text: str) -> tuple[str, int]:
    from kvserving_agent import tier  # noqa: PLC0415 - as above

    return tier.parse_address(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvserving-agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="watch the engine beside it and answer on HTTP")
    wait = commands.add_parser(
        "wait-for-tier", help="wait until every KV instance answers; succeeds in any case"
    )
    wait.add_argument(
        "--timeout", type=_argument(settings.parse_duration), default=60.0, metavar="60s"
    )
    wait.add_argument("--tls", action="store_true", help="the instances speak TLS")
    wait.add_argument("addresses", nargs="+", type=_argument(_address), metavar="HOST:PORT")
    return parser


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A parser for argparse that shows the text of a ValueError, which argparse would hide."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert
