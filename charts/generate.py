"""Write the generated parts of the chart, or check that they are up to date.

    python charts/generate.py [--check]

- files/crds/: the CRD of crds/, which the chart installs, marked to be kept on uninstall;
- templates/_rules.tpl: the operator's permissions, from kvserving_operator/kube/permissions.py;
- README.md: the table of values between the markers, from values.yaml;
- docs/metrics.md: the alert rules between the markers, from files/alerts.yaml.

With --check nothing is written; exit status 1 and one line a file when one differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from kvserving_operator.kube.permissions import PERMISSIONS, Permission, Scope

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "kvserving-operator"
COMMAND = "make generate"

VALUES, ALERTS = "values", "alerts"
KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only say which files differ")
    check = parser.parse_args().check
    stale = [path for path, text in generated() if not path.exists() or path.read_text() != text]
    if check:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date: {COMMAND}\n")
        return 1 if stale else 0
    for path, text in generated():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file with the text it must have."""
    for crd in sorted((ROOT / "crds").glob("*.yaml")):
        yield CHART / "files" / "crds" / crd.name, kept(crd.read_text())
    yield CHART / "templates" / "_rules.tpl", rules_template(PERMISSIONS)
    readme = CHART / "README.md"
    table = values_table((CHART / "values.yaml").read_text())
    yield readme, between(readme.read_text(), VALUES, table)
    page = ROOT / "docs" / "metrics.md"
    rules = (CHART / "files" / "alerts.yaml").read_text().partition("\n")[2]
    yield page, between(page.read_text(), ALERTS, f"```yaml\n{rules}```")


def kept(crd: str) -> str:
    """The CRD's text with the annotation that makes Helm leave it in the cluster."""
    if "\n  annotations:" in crd.partition("\nspec:")[0]:
        raise ValueError("the CRD has annotations of its own: extend generate.py")
    return crd.replace("\nmetadata:\n", "\nmetadata:\n" + KEEP, 1)


def rules_template(permissions: Iterable[Permission]) -> str:
    """Two named templates: the rules for the served namespaces, and for the operator's own."""
    granted = list(permissions)
    parts = [f"{{{{- /* Generated from kube/permissions.py by `{COMMAND}`; do not edit. */ -}}}}"]
    for scope in Scope:
        rules = [rule(p) for p in granted if p.scope is scope]
        name = f"kvserving-operator.rules.{scope.value}"
        parts.append("\n".join([f'{{{{- define "{name}" -}}}}', *rules, "{{- end -}}"]))
    return "\n\n".join(parts) + "\n"


def rule(permission: Permission) -> str:
    """One RBAC rule with the reason above it."""
    verbs = ", ".join(permission.verbs)
    return (
        f"# {permission.why}\n"
        f"- apiGroups: [{json.dumps(permission.group)}]\n"
        f"  resources: [{permission.rule_resource}]\n"
        f"  verbs: [{verbs}]"
    )


def values_table(text: str) -> str:
    """The Markdown table of all documented values, in the order of the file."""
    values = yaml.safe_load(text)
    rows = ["| Value | Default | Meaning |", "| --- | --- | --- |"]
    for path, meaning in documented(text):
        default = json.dumps(look_up(values, path), ensure_ascii=False)
        rows.append(f"| `{'.'.join(path)}` | `{default}` | {meaning.replace('|', '&#124;')} |")
    return "\n".join(rows)


def documented(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and meaning of each value under a `# -- ` comment."""
    path: list[tuple[int, str]] = []
    meaning: list[str] = []
    for line in text.splitlines():
        comment = re.match(r"\s*# (-- )?(.*)", line)
        key = re.match(r"(\s*)([A-Za-z][A-Za-z0-9]*):", line)
        if comment:
            if comment[1]:
                meaning = [comment[2]]
            elif meaning:
                meaning.append(comment[2])
        elif key:
            path = [step for step in path if step[0] < len(key[1])] + [(len(key[1]), key[2])]
            if meaning:
                yield tuple(name for _, name in path), " ".join(meaning)
            meaning = []


def look_up(values: Any, path: tuple[str, ...]) -> Any:
    """The value under a path of keys."""
    for key in path:
        values = values[key]
    return values


def between(page: str, name: str, text: str) -> str:
    """The page with this text between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page of {name} lacks the markers {begin} and {end}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


if __name__ == "__main__":
    sys.exit(main())
