"""``kvserving render``: the objects that the operator would make, without applying them."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kvserving_operator.api import meta
from kvserving_operator.cli import cluster_options, defaults, output
from kvserving_operator.cli.check import Finding, RefusedBy
from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.inputs import Result, add_sources, results
from kvserving_operator.cli.output import note
from kvserving_operator.cli.report import lines
from kvserving_operator.engines.faults import invalid
from kvserving_operator.kube.paths import Key
from kvserving_operator.plan import AuthMaterial, Defaults, Manifest, OwnerReference, Plan
from kvserving_operator.render import render

NAME: Final = "render"
SUMMARY: Final = "print the objects that the operator makes of a manifest"
DESCRIPTION: Final = """\
Prints every object that the operator would apply for the KVServings of a manifest, in its order
and by its own code. Nothing is printed when one of them has a fault.

Without a cluster three things cannot be known and are stood for: the uid of the owner, the
passwords (the Secret comes without data), and so the hashes over them. With --from-cluster the
installed operator is asked for its images and settings, and objects that exist for their uid and
passwords, and for the form in which an earlier operator started their engines, which they keep
until a change of the spec touches it. Passwords are never printed.
"""
EXAMPLES: Final = """\
examples:
  kvserving render -f glm.yaml
  kvserving render -f glm.yaml -o json | jq -r '.items[] | .kind + "/" + .metadata.name'
  kvserving render -f clusters/prod -o dir --output-dir rendered
  kvserving render -f glm.yaml --router-image registry.example/router:1
  kvserving render -f glm.yaml --from-cluster
"""

UNKNOWN_UID: Final = "00000000-0000-0000-0000-000000000000"
_UNKNOWN: Final = "unknown"
UNKNOWN_AUTH: Final = AuthMaterial(
    agent_token=_UNKNOWN, engine_password=_UNKNOWN, operator_password=_UNKNOWN
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    add_sources(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json", "dir"),
        default="yaml",
        help="a stream of documents, one List, or a file for each object; default: yaml",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="with -o dir: the folder in which NAMESPACE/NAME/ is made",
    )
    parser.add_argument(
        "--from-cluster", action="store_true", help="ask a cluster for what only it knows"
    )
    defaults.add_options(parser)
    cluster_options.add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Render everything or nothing; the exit status."""
    if (options.output == "dir") != (options.output_dir is not None):
        raise UsageError("-o dir and --output-dir DIR go together")
    installed = _installed(options) if options.from_cluster else {}
    known = defaults.resolve(options, installed)
    checked = results(options, known, options.namespace or "default")
    faulty = [result for result in checked if result.findings or _nameless(result)]
    if faulty:
        for line in lines(faulty, sys.stderr):
            sys.stderr.write(f"{line}\n")
        return 1
    planned = [(dict(r.stored), r.plan) for r in checked if r.plan is not None]
    there = _in_force(options, planned, known) if options.from_cluster else {}
    objects: dict[Key, tuple[Manifest, ...]] = {}
    for _, plan in planned:
        key = Key(plan.namespace, plan.name)
        objects[key] = tuple(_shown(m) for m in there.get(key) or rendered(plan))
        if plan.suspended:
            note(f"{key.namespace}/{key.name}: is suspended; the operator changes nothing now")
    _write(options, objects)
    return 0


def rendered(plan: Plan) -> tuple[Manifest, ...]:
    """The objects of a plan, as far as they are known without a cluster."""
    owner = OwnerReference(
        api_version=meta.API_VERSION, kind=meta.KIND, name=plan.name, uid=UNKNOWN_UID
    )
    return render(plan, UNKNOWN_AUTH, owner)


def _shown(manifest: Manifest) -> Manifest:
    """A Secret loses its data: pods that would start with it wait, and nothing is given away."""
    if manifest["kind"] != "Secret":
        return manifest
    return {field: value for field, value in manifest.items() if field != "data"}


def _nameless(result: Result) -> bool:
    """Whether the server would make up the name, on which those of all children rest."""
    metadata = result.manifest.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("name"):
        return False
    fault = invalid("metadata.name", "is needed to render", "write it instead of generateName")
    result.findings = (*result.findings, Finding(fault=fault, by=RefusedBy.READER))
    return True


def _write(options: argparse.Namespace, objects: Mapping[Key, Sequence[Manifest]]) -> None:
    flat = [manifest for manifests in objects.values() for manifest in manifests]
    if options.output == "dir":
        for where, manifests in objects.items():
            output.write_folder(options.output_dir / where.namespace / where.name, manifests)
        note(f"{len(flat)} objects in {options.output_dir}")
    else:
        text = output.as_json(flat) if options.output == "json" else output.as_yaml_stream(flat)
        sys.stdout.write(text)


def _installed(options: argparse.Namespace) -> Mapping[str, str]:
    from kvserving_operator.cli import cluster  # noqa: PLC0415 - its imports cost half a second

    options.namespace = cluster.namespace(options)
    return cluster.asked(cluster.installed(options))


def _in_force(
    options: argparse.Namespace, planned: Sequence[tuple[Manifest, Plan]], known: Defaults
) -> Mapping[Key, tuple[Manifest, ...]]:
    from kvserving_operator.cli import cluster  # noqa: PLC0415 - see _installed

    return cluster.asked(cluster.in_force(options, planned, known))
