"""The verdict without a server (`kvserving validate`) is the verdict of the real one."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from cluster.controlplane import ControlPlane
from kvserving_operator.admission import admit
from kvserving_operator.admission.schema import object_schema
from kvserving_operator.admission.verdict import related
from kvserving_operator.cli.check import check
from kvserving_operator.cli.yamltext import documents
from kvserving_operator.plan import Manifest
from kvserving_operator.render import render
from tests.component.admission_rows import ACCEPTED
from tests.component.apiserver import Answer, Object, Server
from tests.component.refused_by_operator import BY_OPERATOR
from tests.component.refused_data_path import DATA_PATH
from tests.component.refused_operation import OPERATION
from tests.unit.api import hostile
from tests.unit.api.builders import make
from tests.unit.api.schema_tools import values
from tests.unit.stack import AUTH, DEFAULTS, owner

SPEC = object_schema()["properties"]["spec"]
REFUSED = DATA_PATH | OPERATION


def same_verdict(server: Server, obj: Object) -> Answer:
    """Ask both; they agree, on the fields as well, and on what is stored."""
    answer = server.create("default", obj)
    verdict = admit(obj)
    said = [str(fault) for fault in verdict.faults]
    assert answer.ok == (not said), (answer.message[:400], said)
    if answer.ok:
        assert verdict.stored["spec"] == answer.body["spec"]
        return answer
    assert 400 <= answer.status < 500, answer
    fields = [fault.field for fault in verdict.faults]
    for field in server_fields(answer):
        assert any(related(field, ours) for ours in fields), (field, answer.message[:400], said)
    return answer


def server_fields(answer: Answer) -> Iterator[str]:
    """The fields that a refusal names, as far as it names them apart from its message."""
    for cause in answer.body.get("details", {}).get("causes", []):
        field = cause.get("field") or "<nil>"
        if field[0] not in "<.":  # no field at all, or a path of the scale subresource
            yield field


@pytest.mark.parametrize("row", REFUSED)
def test_refused_rows(server: Server, row: str) -> None:
    changes, field, _ = REFUSED[row]
    assert not same_verdict(server, make(changes)).ok
    fields = [fault.field for fault in admit(make(changes)).faults]
    assert any(field in found for found in fields), fields


@pytest.mark.parametrize("row", ACCEPTED)
def test_accepted_rows(server: Server, row: str) -> None:
    assert same_verdict(server, make(ACCEPTED[row])).ok


@pytest.mark.parametrize("row", BY_OPERATOR)
def test_rows_that_the_operator_refuses(server: Server, row: str) -> None:
    changes, field, remedy = BY_OPERATOR[row]
    assert same_verdict(server, make(changes)).ok
    found = {finding.fault.field: finding for finding in check(make(changes), DEFAULTS).findings}
    assert field in found, list(found)
    assert remedy in found[field].fault.remedy
    assert found[field].by == "operator"


HEADS: dict[str, dict[str, Any]] = {
    "no version": {"apiVersion": "kvserving.io/v1"},
    "unknown root": {"extra": 1},
    "no name": {"metadata": {}},
    "generated": {"metadata": {"generateName": "a-"}},
    "number as a name": {"metadata": {"name": 7}},
    "long": {"metadata": {"name": "x" * 45}},
    "longest": {"metadata": {"name": "x" * 44}},
    "very long": {"metadata": {"name": "x" * 254}},
    "dots": {"metadata": {"name": "a.b"}},
    "digit": {"metadata": {"name": "9a"}},
    "capital": {"metadata": {"name": "A"}},
    "dash": {"metadata": {"name": "a-"}},
    "script": {"metadata": {"name": "$(id)"}},
    "unknown metadata": {"metadata": {"name": "x", "lables": {}}},
    "label value": {"metadata": {"name": "x", "labels": {"a": "b c"}}},
    "label key": {"metadata": {"name": "x", "labels": {"a b": "c"}}},
    "label domain": {"metadata": {"name": "x", "labels": {"a_b/c": "d"}}},
    "label number": {"metadata": {"name": "x", "labels": {"a": 1}}},
    "annotation": {"metadata": {"name": "x", "annotations": {"a.b/c": "any \u00e9 text\n"}}},
    "annotation key": {"metadata": {"name": "x", "annotations": {"a/b/c": "d"}}},
    "large annotation": {"metadata": {"name": "x", "annotations": {"a": "x" * 300_000}}},
    "no spec": {"spec": None},
    "text as spec": {"spec": "x"},
    "list as spec": {"spec": []},
}


@pytest.mark.parametrize("row", HEADS)
def test_heads(server: Server, row: str) -> None:
    same_verdict(server, make() | HEADS[row])


SHAPES: dict[str, dict[str, Any]] = {
    "null in a list": {"engine.extraArgs": [None]},
    "null in a map": {"decode.workloadLabels": {"a": None}},
    "null section": {"kvCache": None, "decode.drain": None},
    "null required": {"model.name": None},
    "null in a blob": {"engine.podTemplate": {"spec": {"x": None}}},
    "null blob": {"engine.podTemplate": None},
    "blob as text": {"engine.podTemplate": "x"},
    "blob as list": {"engine.podTemplate": []},
    "float": {"decode.replicas": 1.5},
    "true as a number": {"decode.replicas": True},
    "number as true": {"suspend": 1},
    "huge": {"decode.replicas": 10**30},
    "64 bits": {"model.maxModelLen": 2**63},
    "negative": {"decode.replicas": -1},
    "section as text": {"kvCache": "x"},
    "section as list": {"kvCache": []},
    "list as object": {"engine.extraArgs": {"a": "b"}},
    "129 arguments": {"engine.extraArgs": ["x"] * 129},
    "33 labels": {"decode.workloadLabels": {f"a{n}": "b" for n in range(33)}},
    "int or text": {"decode.rdma.resources": {"rdma/ib": 1.5}},
    "negative devices": {"decode.rdma.resources": {"rdma/ib": -1}},
    "env without a name": {"engine.env": [{"value": "x"}]},
    "env as texts": {"engine.env": ["A=1"]},
    "unknown in a list": {"engine.env": [{"name": "A", "valeu": "x"}]},
    "unknown deep": {"kvCache.remote.tls.issuerRef": {"name": "x", "extra": 1}},
    "wrong enum with rules": {"kvCache.hot.mode": "off", "kvCache.remote.type": "managed"},
    "many at once": {
        "decode.replicas": -1,
        "model.name": "",
        "engine.features": ["a", "b"],
        "tuning": {"mode": "Maybe", "interval": "1d"},
    },
}


@pytest.mark.parametrize("row", SHAPES)
def test_shapes(server: Server, row: str) -> None:
    same_verdict(server, make(SHAPES[row]))


@pytest.mark.takes(25)
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(spec=values(SPEC))
def test_random_specs(server: Server, spec: Object) -> None:
    """Whatever the schema lets through: the rules decide, and they decide alike."""
    same_verdict(server, make() | {"spec": spec})


BASE = render(check(make({"prefill": {}}), DEFAULTS).plan, AUTH, owner())  # type: ignore[arg-type]


def commands(manifests: tuple[Manifest, ...]) -> dict[tuple[str, str], list[str]]:
    """Program and script of every container: what a shell would read."""
    return {
        (manifest["metadata"]["name"], container["name"]): container.get("command", [])[:3]
        for manifest in manifests
        for pod in [manifest.get("spec", {}).get("template", {}).get("spec", {})]
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ()))
    }


FIELDS = sorted(hostile.string_fields(SPEC))
SHARE = 1 if os.environ.get("KVSERVING_TEST_THOROUGH") else 4


@pytest.mark.parametrize("field", FIELDS)
def test_hostile_texts(server: Server, field: str) -> None:
    """In every text of a spec: refused by both, or taken by both and rendered unharmed.

    A quarter of the texts in each field, another one in its neighbour; with
    KVSERVING_TEST_THOROUGH=1 every text in every field.
    """
    for text in hostile.STRINGS[FIELDS.index(field) % SHARE :: SHARE]:
        obj = make({"prefill": {}} | hostile.changes(field, text))
        same_verdict(server, obj)
        unharmed(obj, text)


KEYED = {
    "workloadLabels": "decode.workloadLabels",
    "workloadAnnotations": "decode.workloadAnnotations",
    "service annotations": "router.service.annotations",
    "monitor labels": "metrics.podMonitor.labels",
    "devices": "decode.rdma.resources",
    "extra configuration": "transfer.nixl.extraConfig",
    "resources": "decode.resources.limits",
    "volume source": "engine.cacheVolume",
    "podTemplate": "decode.podTemplate",
}


@pytest.mark.parametrize("row", KEYED)
def test_hostile_keys(server: Server, row: str) -> None:
    for text in hostile.STRINGS:
        obj = make({"prefill": {}, KEYED[row]: {text: "1"}})
        same_verdict(server, obj)
        unharmed(obj, text)


def unharmed(obj: Object, text: str) -> None:
    """No crash, no other command line in any shell, and the same objects after YAML."""
    checked = check(obj, DEFAULTS)
    if checked.plan is None:
        return
    rendered = render(checked.plan, AUTH, owner())
    dumped = yaml.dump_all(rendered, Dumper=yaml.CSafeDumper)
    assert tuple(yaml.load_all(dumped, Loader=yaml.CSafeLoader)) == rendered
    assert json.loads(json.dumps(rendered)) == list(rendered)
    before = commands(BASE)
    for container, command in commands(rendered).items():
        assert command == before.get(container, command), text
        assert not any(hostile.carries(word, text) for word in command if len(text) > 8), text


ODD = """\
apiVersion: kvserving.io/v1alpha1
kind: KVServing
metadata: {name: x}
spec:
  b: [yes, No, on, OFF, y, n, true, "yes"]
  i: [1, -7, +7, 0x1F, 017, 0o17, 0b11, 1_000, 08, 12:30, 1e3, 1.0, 1.5, -0]
  s: [2026-01-02, 2026-01-02T03:04:05Z, 1.2.3, 16Gi, "off", =, ~x]
  n: [~, null, ]
  f: {1: a, true: b, k: &x {a: 1}, m: {<<: *x, b: 2}}
  t: |
    lines
      of text
  u: "\\u00e9\\U0001f600"
"""


def test_yaml_means_what_it_means_to_kubectl(control_plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(ODD)
    program = str(control_plane.program("kubectl"))
    command = [program, "annotate", "--local", "-f", str(file), "a=b", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [ours] = documents(ODD)
    assert json.loads(done.stdout)["spec"] == ours["spec"]
