"""The generated parts of the chart are up to date, and drift is noticed."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import yaml

from kvserving_operator import __version__

from . import helm

REPOSITORY = helm.CHART.parents[1]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "charts" / "generate.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_out_of_date() -> None:
    done = generate("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_chart_operator_and_crd_share_one_version() -> None:
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_the_crd_is_the_generated_one_and_is_kept() -> None:
    crd = deepcopy(helm.only("default", "CustomResourceDefinition"))
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    source = Path(REPOSITORY / "crds" / "kvserving.io_kvservings.yaml")
    assert crd == yaml.load(source.read_text(), Loader=yaml.CSafeLoader)
    assert helm.of_kind("minimal", "CustomResourceDefinition") == []


def test_the_readme_documents_every_value() -> None:
    readme = (helm.CHART / "README.md").read_text()
    values = yaml.safe_load((helm.CHART / "values.yaml").read_text())
    for key in values:
        assert f"| `{key}" in readme, key
