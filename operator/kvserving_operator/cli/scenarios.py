"""Which scenario is simulated: a shipped workload or a spec, and what flags change in it."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvserving_operator.cli import plan_options
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.plan_stack import Sized, planned, sized_of
from kvserving_operator.cli.scenario_flags import HELP, of_flags, of_manifest, remedy
from kvserving_operator.cli.yamltext import TextError, documents
from kvserving_operator.simulation.scenario import Scenario
from kvserving_operator.simulation.shipped import SpecError, merge, names, scenario


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """The flags that make a scenario."""
    group = parser.add_argument_group("what is simulated")
    group.add_argument(
        "--workload",
        metavar="NAME|SPEC",
        help="a shipped workload (below), or a YAML file that may extend one (`extends: NAME`)",
    )
    group.add_argument(
        "--trace", metavar="FILE", help="requests, one a line; they replace those of the workload"
    )
    group.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help="a file with one KVServing, or -: its engines, tiers, router and decode",
    )
    group.add_argument(
        "--requests", type=_number, metavar="N", help="requests of the workload; default: its own"
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one value of the scenario, such as engines.count=4; may be repeated",
    )
    plan_options.add_options(parser, HELP)


def chosen(options: argparse.Namespace) -> Scenario:
    """The scenario that the flags ask for; UsageError names the field at fault."""
    content = _content(options.workload) if options.workload else {}
    manifest, known = _manifest(options.filename)
    changes = merge(manifest, of_flags(options, known))
    for change in options.set:
        changes = merge(changes, _change(change))
    try:
        return scenario(content, changes)
    except SpecError as error:
        wanted = remedy(error.missing)
        told = f"{error}; {wanted}" if wanted else f"{error}"
        raise UsageError(f"{options.workload or 'the scenario'}: {told}") from error


def _manifest(filename: str | None) -> tuple[Mapping[str, Any], Sized]:
    """What a KVServing changes, and what ``plan``'s flags take from it."""
    if filename is None:
        return {}, Sized()
    found = planned(filename)
    if isinstance(found, tuple):
        raise UsageError(found[0])
    return of_manifest(found), sized_of(found)


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 on")
    return int(text)


def _content(source: str) -> Mapping[str, Any]:
    if source in names():
        return {"extends": source}
    path = Path(source)
    try:
        read = list(documents(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(
            f"--workload {source}: neither a file nor one of {', '.join(names())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: cannot be read ({error})") from error
    except TextError as error:
        raise UsageError(f"{source}: {error}") from error
    if len(read) != 1 or not isinstance(read[0], Mapping):
        raise UsageError(f"{source}: is not one mapping")
    return read[0]


def _change(text: str) -> dict[str, Any]:
    """``a.b=1`` as a mapping in a mapping."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip("."):
        raise UsageError(f"--set {text}: write KEY=VALUE, such as engines.count=4")
    try:
        change: Any = next(iter(documents(value)), None)
    except TextError as error:
        raise UsageError(f"--set {text}: the value is no YAML ({error})") from None
    for key in reversed(path.split(".")):
        change = {key: change}
    return dict(change)
