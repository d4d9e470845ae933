"""``kvserving diff``: what applying a manifest would change in a cluster."""

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from kvserving_operator.admission.texts import printable
from kvserving_operator.cli import cluster_options, defaults, output
from kvserving_operator.cli.changes import Change, presentable
from kvserving_operator.cli.inputs import add_sources, results
from kvserving_operator.cli.output import Colour, coloured, note
from kvserving_operator.cli.report import lines

NAME: Final = "diff"
SUMMARY: Final = "compare a manifest, and all that the operator makes of it, with a cluster"
DESCRIPTION: Final = """\
Shows what would change in a cluster if the manifest were applied: the KVServing itself, and every
object that the operator would then create, change or delete. The API server is asked by dry runs,
with the rights of the user, so its defaults and its admission webhooks have their say. Nothing is
written. Values of Secrets are not shown.

The exit status is 0 when nothing would change, 1 when something would, 2 on failure.
"""
EXAMPLES: Final = """\
examples:
  kvserving diff -f glm.yaml
  kvserving diff -f clusters/prod --context prod
  kvserving diff -f glm.yaml --router-image registry.example/router:2   # before an upgrade
"""
_CONTEXT: Final = 3
_SIGNS: Final = {"+": Colour.GREEN, "-": Colour.RED, "@": Colour.CYAN}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    add_sources(parser)
    defaults.add_options(parser)
    cluster_options.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Compare everything; the exit status."""
    from kvserving_operator.cli import cluster, dry_run  # noqa: PLC0415 - half a second of imports

    namespace = cluster.namespace(options)
    known = defaults.resolve(options, cluster.asked(cluster.installed(options)))
    checked = results(options, known, namespace)
    faulty = [result for result in checked if result.findings]
    for line in lines(faulty, sys.stderr):
        sys.stderr.write(f"{line}\n")
    if faulty:
        return 2
    outcome = cluster.asked(dry_run.compared(options, [r.manifest for r in checked], known))
    for remark in outcome.remarks:
        note(remark)
    for change in outcome.changes:
        sys.stdout.writelines(f"{line}\n" for line in _shown(change))
    for failure in outcome.failures:
        note(f"kvserving: {failure}")
    if outcome.failures:
        return 2
    return 1 if outcome.changes else 0


def _shown(change: Change) -> Iterator[str]:
    """The difference of one object, as ``diff -u`` writes it."""
    for line in difflib.unified_diff(
        _text(change.live), _text(change.wanted), f"live/{change.label}", f"applied/{change.label}",
        n=_CONTEXT, lineterm="",
    ):  # fmt: skip
        colour = Colour.BOLD if line[:3] in {"---", "+++"} else _SIGNS.get(line[:1])
        text = printable(line)
        yield coloured(text, colour, sys.stdout) if colour else text


def _text(manifest: object) -> Sequence[str]:
    if not isinstance(manifest, dict):
        return []
    return output.as_yaml(presentable(manifest)).splitlines()
