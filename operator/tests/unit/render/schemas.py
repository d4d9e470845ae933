"""Strict Kubernetes schemas, each loaded once: the library reads them anew for every object."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from kubernetes_validate import utils
from referencing import Registry, Resource

VERSIONS = ("1.34.0", "1.37.0")


def faults(manifest: dict[str, Any], version: str) -> list[str]:
    """Everything in ``manifest`` that the strict schema of ``version`` does not know."""
    group, _, api = manifest["apiVersion"].rpartition("/")
    name = "-".join(part for part in (manifest["kind"].lower(), group.split(".")[0], api) if part)
    return [f"{e.json_path}: {e.message}" for e in _validator(version, name).iter_errors(manifest)]


@cache
def _validator(version: str, name: str) -> Validator:
    return Draft202012Validator(_contents(version, name), registry=_definitions(version))


@cache
def _definitions(version: str) -> Any:
    return Resource.from_contents(_contents(version, "_definitions")) @ Registry()


def _contents(version: str, name: str) -> Any:
    path = f"kubernetes-json-schema/v{version}-local-strict/{name}.json"
    return utils.schema_contents(path, version)
