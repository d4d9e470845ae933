"""``kvserving validate``: every fault of every manifest, without a cluster."""

import argparse
import json
from collections.abc import Iterator, Sequence

from kvserving_operator.cli import defaults
from kvserving_operator.cli.inputs import Result, add_sources, identity, results
from kvserving_operator.cli.output import note, say
from kvserving_operator.cli.report import lines

NAME = "validate"
SUMMARY = "say everything that is wrong with a manifest, without a cluster"
DESCRIPTION = """\
Checks KVServing manifests as a cluster would: the schema and its rules, which the API server
evaluates when an object is written, and what the operator checks before it touches anything.
Prints one line for each fault: field, what is wrong, remedy. The exit status is 0 when there is
none and 1 when there is one.
"""
EXAMPLES = """\
examples:
  kvserving validate -f glm.yaml
  kustomize build overlays/prod | kvserving validate -f -
  kvserving validate -R -f clusters/ -o json | jq -r '.[].field'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    add_sources(parser)
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: text"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing but the exit status")


def run(options: argparse.Namespace) -> int:
    """Check everything; the exit status."""
    checked = results(options, defaults.released(), options.namespace or "default")
    faulty = sum(1 for result in checked if result.findings)
    if options.output == "json":
        if not options.quiet:
            say(json.dumps(list(_records(checked)), indent=2, ensure_ascii=False))
    elif not options.quiet:
        for line in lines(checked):
            say(line)
        note(f"{len(checked) - faulty} of {len(checked)} valid")
    return 1 if faulty else 0


def _records(checked: Sequence[Result]) -> Iterator[dict[str, str]]:
    for result in checked:
        for finding in result.findings:
            fault = finding.fault
            yield {
                "source": result.source,
                "object": identity(result),
                "field": fault.field,
                "what": fault.what,
                "remedy": fault.remedy,
                "reason": fault.reason.value,
                "refusedBy": finding.by.value,
            }
