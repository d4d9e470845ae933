"""Strict schemas of rendered objects, each loaded once: the library reads them for every object.

Kubernetes' own kinds come from kubernetes-validate; those of other projects from the CRDs in
``tests/crds``, which hold what the operator writes and nothing else.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from kubernetes_validate import utils

VERSIONS = ("1.34.0", "1.35.0", "1.36.0", "1.37.0")
CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))


def faults(manifest: dict[str, Any], version: str) -> list[str]:
    """Everything in ``manifest`` that the strict schema of ``version`` does not know."""
    group, _, api = manifest["apiVersion"].rpartition("/")
    validator = _of_a_crd(group, manifest["kind"])
    if validator is None:
        kind = manifest["kind"].lower()
        name = "-".join(part for part in (kind, group.split(".")[0], api) if part)
        validator = _validator(version, name)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(manifest)]


@cache
def _of_a_crd(group: str, kind: str) -> Validator | None:
    for path in CRDS:
        spec = yaml.safe_load(path.read_text())["spec"]
        if (spec["group"], spec["names"]["kind"]) == (group, kind):
            (version,) = spec["versions"]
            return Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))
    return None


def _closed(schema: Any) -> Any:
    """The schema with unknown properties refused, as a strict apiserver does."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def _validator(version: str, name: str) -> Validator:
    return Draft202012Validator(_inlined(_contents(version, name), version))


def _inlined(schema: Any, version: str) -> Any:
    """The schema without references: looking each of them up took most of the time."""
    if isinstance(schema, list):
        return [_inlined(item, version) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _definition(version, schema["$ref"].rpartition("/")[2])
    return {key: _inlined(value, version) for key, value in schema.items()}


@cache
def _definition(version: str, name: str) -> Any:
    """Cached, so that a definition is one object wherever it is used. None refers to itself."""
    return _inlined(_definitions(version)[name], version)


@cache
def _definitions(version: str) -> Any:
    return _contents(version, "_definitions")["$defs"]


def _contents(version: str, name: str) -> Any:
    path = f"kubernetes-json-schema/v{version}-local-strict/{name}.json"
    return utils.schema_contents(path, version)
