"""helm as the tests use it: one binary, rendered manifests as objects, no cluster."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries

CHART = Path(__file__).resolve().parents[3] / "charts" / "kvserving-operator"
VALUES = Path(__file__).with_name("values")
RELEASE, NAMESPACE = "kvserving", "kvserving-system"
# The oldest and the newest version of Kubernetes that the manifests are checked against.
KUBERNETES = ("1.34", "1.37")

Object = dict[str, Any]


def cases() -> list[str]:
    """Names of the values files of the matrix."""
    return sorted(path.stem for path in VALUES.glob("*.yaml"))


@cache
def binary() -> str:
    """$HELM, else the one that the cluster tool has built; a test that needs it fails without."""
    if given := os.environ.get("HELM"):
        return given
    if not binaries.is_built(binaries.HELM):
        pytest.fail("helm is missing: `python -m cluster up` builds it, or set HELM", pytrace=False)
    return str(binaries.folder() / binaries.HELM.key / binaries.HELM.name)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm without any cluster or configuration of the user's."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"}
    return subprocess.run(
        [binary(), *arguments], capture_output=True, text=True, env=env, check=False, timeout=120
    )


@cache
def text(case: str, *flags: str) -> str:
    """The manifests of a case as Helm prints them."""
    values = str(VALUES / f"{case}.yaml")
    done = run("template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", values, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(case: str, *flags: str) -> list[str]:
    """The manifests of a case as texts; comments between them are none."""
    parts = re.split(r"^---$", text(case, *flags), flags=re.MULTILINE)
    return [part for part in parts if re.search(r"^[a-zA-Z]", part, re.MULTILINE)]


@cache
def read(document: str) -> Object:
    """One manifest as an object, which the caller must not change."""
    parsed = yaml.load(document, Loader=UniqueKeys)  # noqa: S506 - a SafeLoader
    assert isinstance(parsed, dict)
    return parsed


def objects(case: str, *flags: str) -> list[Object]:
    return [read(document) for document in documents(case, *flags)]


def of_kind(case: str, kind: str, *flags: str) -> list[Object]:
    return [found for found in objects(case, *flags) if found["kind"] == kind]


def only(case: str, kind: str) -> Object:
    (found,) = of_kind(case, kind)
    return found


class UniqueKeys(yaml.CSafeLoader):
    """A safe loader for which a key that is given twice is an error and not the last one wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.YAMLError(f"duplicate keys {sorted(twice)} in{node.start_mark}")
        return super().construct_mapping(node, deep)
