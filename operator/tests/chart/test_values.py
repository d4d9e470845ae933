"""values.schema.json: refuses what would not work, knows every value, and is a good schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from . import helm

SCHEMA: dict[str, Any] = json.loads((helm.CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((helm.CHART / "values.yaml").read_text())

REFUSED: list[tuple[str, str]] = [
    ("replica: 2", "/replica"),
    ("image: {name: x}", "/image"),
    ("metrics: {serviceMonitors: {enabled: true}}", "/metrics"),
    ("replicas: two", "/replicas"),
    ("replicas: -1", "/replicas"),
    ("replicas: 1.5", "/replicas"),
    ("namespaces: serving", "/namespaces"),
    ("namespaces: [serving, serving]", "/namespaces"),
    ('namespaces: ["*"]', "/namespaces"),
    ("namespaces: [Serving]", "/namespaces"),
    ('namespaces: ["a,b"]', "/namespaces"),
    ('image: {repository: ""}', "/image"),
    ("image: {tag: 1.0}", "/image"),
    ("image: {tag: a b}", "/image"),
    ("image: {digest: sha256:abc}", "/image"),
    ("image: {pullPolicy: Sometimes}", "/image"),
    ("imagePullSecrets: [pull]", "/imagePullSecrets"),
    ('defaults: {routerImage: "a b"}', "/defaults"),
    ('crds: {install: "yes"}', "/crds"),
    ("crds: {keep: false}", "/crds"),
    ("logLevel: verbose", "/logLevel"),
    ("workers: 0", "/workers"),
    ("resyncInterval: 5m", "/resyncInterval"),
    ("extraEnv: {A: b}", "/extraEnv"),
    ("extraEnv: [{name: KVSERVING_NAMESPACES, value: x}]", "/extraEnv"),
    ("extraEnv: [{name: A, value: 1}]", "/extraEnv"),
    ("resources: {limits: {memory: lots}}", "/resources"),
    ("resources: {limit: {memory: 1Gi}}", "/resources"),
    ("podAnnotations: {a: 1}", "/podAnnotations"),
    ("podLabels: {app.kubernetes.io/name: other}", "/podLabels"),
    ("serviceAccount: {name: Not_A_Name}", "/serviceAccount"),
    ("priorityClassName: [x]", "/priorityClassName"),
    ("tolerations: {key: x}", "/tolerations"),
    ("terminationGracePeriodSeconds: 0", "/terminationGracePeriodSeconds"),
    ("metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}", "/metrics"),
    ("metrics: {serviceMonitor: {interval: 30}}", "/metrics"),
    ("metrics: {prometheusRule: {enabled: 1}}", "/metrics"),
    ("networkPolicy: {metricsFrom: [{}]}", "/networkPolicy"),
    ("fullnameOverride: Über", "/fullnameOverride"),
]


@pytest.mark.parametrize(("values", "where"), REFUSED, ids=[values for values, _ in REFUSED])
def test_refused_by_helm_with_the_place(values: str, where: str, tmp_path: Any) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values + "\n")
    done = helm.run("template", "x", str(helm.CHART), "-f", str(file))
    assert done.returncode != 0, "accepted"
    assert "values don't meet the specifications of the schema" in done.stderr
    last = where.strip("/")
    assert last in done.stderr, done.stderr


def test_the_schema_is_one_of_its_draft_and_the_values_meet_it() -> None:
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(VALUES)


def test_no_object_of_the_charts_own_takes_unknown_keys() -> None:
    for path, schema in objects_with_keys(SCHEMA):
        assert schema["additionalProperties"] is False, path


def test_schema_and_values_have_the_same_keys() -> None:
    # `global` belongs to a parent chart.
    assert keys(SCHEMA, "properties") - {("global",)} == keys(VALUES)


def test_every_value_is_used_and_every_used_value_exists() -> None:
    templates = "".join(p.read_text() for p in (helm.CHART / "templates").iterdir())
    for path in keys(VALUES):
        name = ".".join(path)
        # Used by name, or as part of an object that is used whole (`with`, `toYaml`).
        parents = [".".join(path[:n]) for n in range(1, len(path))]
        whole = any(re.search(rf"\.Values\.{re.escape(p)}[ )]", templates) for p in parents)
        assert f".Values.{name}" in templates or whole, name
    for used in re.findall(r"\.Values\.([A-Za-z.]+)", templates):
        assert tuple(used.split(".")) in keys(VALUES), used


def objects_with_keys(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema that fixes the keys of an object (conditions inside `if` and `then` are none)."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            yield path, schema
        for key, child in schema.items():
            if key not in ("if", "then"):
                yield from objects_with_keys(child, f"{path}/{key}")
    elif isinstance(schema, list):
        for number, child in enumerate(schema):
            yield from objects_with_keys(child, f"{path}/{number}")


def keys(tree: dict[str, Any], step: str = "") -> set[tuple[str, ...]]:
    """Paths of all keys that the chart defines; what is below free-form values is not its own."""
    free = {"resources", "podSecurityContext", "securityContext"}
    found: set[tuple[str, ...]] = set()

    def walk(node: dict[str, Any], path: tuple[str, ...]) -> None:
        children = node.get(step, {}) if step else node
        for key, child in children.items():
            found.add((*path, key))
            if isinstance(child, dict) and key not in free:
                walk(child, (*path, key))

    walk(tree, ())
    return found
