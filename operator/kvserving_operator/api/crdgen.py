"""Makes the CRD and its reference page from the models.

``python -m kvserving_operator.api.crdgen`` writes them; ``--check`` exits 1 when they differ
from what would be written. Output is a function of the models alone.
"""

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from kvserving_operator.api import meta, reference
from kvserving_operator.api.schema import Schema, structural_schema, without_defaults
from kvserving_operator.api.v1alpha1 import KVServing

COMMAND: Final = "make generate"
CRD_FILE: Final = Path("crds") / f"{meta.GROUP}_{meta.PLURAL}.yaml"
REFERENCE_FILE: Final = Path("docs") / "crd-reference.md"
MAX_BYTES: Final = 200_000
"""Client-side `kubectl apply` copies the object into an annotation of at most 262,144 bytes."""

_PRINTER_COLUMNS: Final = (
    ("Phase", "string", ".status.phase", "One word for the whole, derived from the conditions."),
    ("Prefill", "string", ".status.prefill.summary", "Prefill replicas: ready/wanted."),
    ("Decode", "string", ".status.decode.summary", "Decode replicas: ready/wanted."),
    ("Tier", "string", ".status.tier.summary", "Instances of the remote tier: ready/wanted."),
    ("Loading", "string", ".status.tuning.loading", "Loading mode in force."),
    ("GPUs", "integer", ".status.gpus.requested", "Accelerators that the pods ask for."),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Ready")].reason',
        "Reason of the condition Ready.",
    ),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was created."),
)


def root_schema() -> Schema:
    """The schema of the whole object.

    Of metadata a schema may restrict name and generateName, nothing else; the bound is there
    because the apiserver charges the rules on the name by it.
    """
    schema = structural_schema(KVServing)
    properties = schema["properties"]
    schema["properties"] = {
        "apiVersion": {
            "type": "string",
            "description": "Version of the API: kvserving.io/v1alpha1.",
        },
        "kind": {"type": "string", "description": "Kind of the object: KVServing."},
        "metadata": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 253}},
        },
        "spec": properties["spec"],
        "status": without_defaults(properties["status"]),
    }
    schema["required"] = ["spec"]
    return schema


def custom_resource_definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": meta.CRD_NAME,
            "labels": {meta.LABEL_NAME: meta.PART_OF, meta.LABEL_PART_OF: meta.PART_OF},
        },
        "spec": {
            "group": meta.GROUP,
            "names": {
                "kind": meta.KIND,
                "listKind": f"{meta.KIND}List",
                "plural": meta.PLURAL,
                "singular": meta.SINGULAR,
                "shortNames": list(meta.SHORT_NAMES),
                "categories": list(meta.CATEGORIES),
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": meta.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [
            {"name": name, "type": type_, "jsonPath": path, "description": description}
            for name, type_, path, description in _PRINTER_COLUMNS
        ],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.prefill.replicas",
                "statusReplicasPath": ".status.prefill.replicas",
                "labelSelectorPath": ".status.prefill.selector",
            },
        },
        "schema": {"openAPIV3Schema": root_schema()},
    }


def crd_text() -> str:
    """The CRD file."""
    text = yaml.dump(
        custom_resource_definition(),
        Dumper=_Dumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
    )
    return f"# Generated from the models by `{COMMAND}`; do not edit.\n{text}"


class _Dumper(yaml.SafeDumper):
    """Spells shared parts out: an alias would surprise readers and some tools."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@functools.cache
def generated_files() -> Mapping[Path, str]:
    """Every file that is made from the models, by its path in the repository."""
    return {
        CRD_FILE: crd_text(),
        REFERENCE_FILE: reference.markdown(root_schema(), command=COMMAND),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the generated files, or with ``--check`` compare them."""
    parser = argparse.ArgumentParser(prog="crdgen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when a file is out of date")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository")
    options = parser.parse_args(arguments)
    stale = []
    for path, text in generated_files().items():
        target = options.root / path
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path))
        if not options.check:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    if options.check and stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; regenerate: {COMMAND}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
