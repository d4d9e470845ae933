"""The flags that name manifests, and the manifests that they name."""

import argparse
from collections.abc import Mapping, Sequence

from kvserving_operator.admission.texts import printable
from kvserving_operator.cli.check import Finding, RefusedBy, check
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.output import note
from kvserving_operator.cli.sources import Document, read
from kvserving_operator.engines.faults import invalid
from kvserving_operator.plan import Defaults, Plan


class Result:
    """A document with what was found in it."""

    def __init__(self, document: Document, namespace: str, known: Defaults) -> None:
        self.source = document.source
        self.manifest = placed(document.content, namespace)
        self.stored: Mapping[str, object] = {}
        self.plan: Plan | None = None
        self.findings: tuple[Finding, ...]
        if document.broken:
            fault = invalid("manifest", document.broken, "correct the file")
            self.findings = (Finding(fault=fault, by=RefusedBy.READER),)
            return
        checked = check(self.manifest, known)
        self.stored, self.findings, self.plan = checked.stored, checked.findings, checked.plan


def add_sources(parser: argparse.ArgumentParser) -> None:
    """The flags ``-f``, ``-R`` and ``-n``."""
    group = parser.add_argument_group("which manifests")
    group.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="a file, a folder, or - for standard input; YAML or JSON, several documents and "
        "Lists too; other kinds in them are left out; may be repeated",
    )
    group.add_argument(
        "-R", "--recursive", action="store_true", help="take folders with all their subfolders"
    )
    group.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace of objects that do not name theirs",
    )


def results(options: argparse.Namespace, known: Defaults, namespace: str) -> Sequence[Result]:
    """Every KVServing of the sources, checked; UsageError when there is none."""
    manifests = read(options.filename, recursive=options.recursive)
    for skipped in manifests.skipped:
        note(f"{skipped}: left out, no KVServing")
    if not manifests.documents:
        raise UsageError(f"{', '.join(options.filename)}: no KVServing in it")
    return [Result(document, namespace, known) for document in manifests.documents]


def placed(content: Mapping[str, object], namespace: str) -> dict[str, object]:
    """The manifest in a namespace: its own, else the given one."""
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("namespace") is not None:
        return dict(content)
    return {**content, "metadata": {**metadata, "namespace": namespace}}


def identity(result: Result) -> str:
    """Namespace and name, as far as they can be read, for messages."""
    metadata = result.manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        return ""
    return printable(f"{metadata.get('namespace', '')}/{metadata.get('name', '')}")
