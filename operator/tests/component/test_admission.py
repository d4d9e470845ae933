"""What the real API server refuses, with field and remedy in the message, and what it lets in."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cluster.controlplane import ControlPlane
from kvserving_operator.api.crdgen import root_schema
from kvserving_operator.api.v1alpha1 import KVServing
from tests.component.admission_rows import ACCEPTED, LEGAL_UPDATES, MANAGED, PCP, RANKED, SGLANG
from tests.component.apiserver import ROOT, Object, Server
from tests.component.refused_data_path import DATA_PATH
from tests.component.refused_operation import OPERATION
from tests.unit.api.builders import make, put

REFUSED = DATA_PATH | OPERATION
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Server:
    made = Server(control_plane.kubeconfig)
    made.install_crd()
    return made


@pytest.fixture
def home() -> str:
    """Where dry runs happen: they leave nothing behind."""
    return "default"


@pytest.mark.parametrize("row", REFUSED)
def test_refused(server: Server, home: str, row: str) -> None:
    changes, field, remedy = REFUSED[row]
    answer = server.create(home, make(changes))
    assert answer.status in {400, 422}, answer
    assert field in answer.message
    assert remedy in answer.message


def test_every_rule_of_the_schema_has_a_row(server: Server, home: str) -> None:
    """And a row breaks one rule only, or its message would not show which one speaks."""
    expected = {rule["message"] for rule in rules(root_schema())}
    broken = {}
    for row, (changes, _, _) in REFUSED.items():
        details = server.create(home, make(changes)).body.get("details", {})
        said = " ".join(cause["message"] for cause in details.get("causes", []))
        broken[row] = {message for message in expected if message in said}
    assert {row: found for row, found in broken.items() if len(found) > 1} == {}
    silent = expected.difference(*broken.values())
    elsewhere = ("metadata.name", "spec.engine.type cannot be changed")  # tests of their own
    assert {message for message in silent if not message.startswith(elsewhere)} == set()


def rules(schema: Any) -> Iterator[dict[str, str]]:
    """Every CEL rule below a schema."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "x-kubernetes-validations":
            yield from value
        else:
            yield from rules(value)


@pytest.mark.parametrize("row", ACCEPTED)
def test_accepted(server: Server, home: str, row: str) -> None:
    answer = server.create(home, make(ACCEPTED[row]))
    assert answer.status == 201, answer.message
    assert_defaults_agree(answer.body)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_accepted(server: Server, home: str, path: Any) -> None:
    obj = yaml.safe_load(path.read_text())
    obj["metadata"].pop("namespace", None)
    answer = server.create(home, obj)
    assert answer.status == 201, answer.message
    assert_defaults_agree(answer.body)


def assert_defaults_agree(live: Object) -> None:
    """The operator reads from the server's object what it would have filled in itself."""
    assert KVServing.parse(live).to_dict()["spec"] == live["spec"]


@pytest.mark.parametrize(
    ("name", "field", "remedy"),
    [
        ("9lives", "metadata.name", "choose another name"),
        ("a.b", "metadata.name", "choose another name"),
        ("x" * 45, "metadata.name", "choose a shorter one"),
        ("X", "metadata.name", "lower case"),
        ("-a", "metadata.name", "RFC 1123"),
        ("a-", "metadata.name", "RFC 1123"),
        ("a b", "metadata.name", "RFC 1123"),
        ("$(reboot)", "metadata.name", "RFC 1123"),
    ],
)
def test_names_refused(server: Server, home: str, name: str, field: str, remedy: str) -> None:
    answer = server.create(home, make(name=name))
    assert answer.status in {400, 422}
    assert field in answer.message
    assert remedy in answer.message


@pytest.mark.parametrize("name", ["a", "x" * 44, "a-9", "glm-5-3"])
def test_names_accepted(server: Server, home: str, name: str) -> None:
    assert server.create(home, make(name=name)).status == 201


@pytest.mark.parametrize("row", LEGAL_UPDATES)
def test_legal_updates(server: Server, namespace: str, row: str) -> None:
    before = PCP | RANKED | MANAGED | {"kvCache.local.sizePerReplica": "1Gi"}
    live = server.create(namespace, make(before), dry_run=False)
    assert live.status == 201, live.message
    changed = make(before)
    for path, value in LEGAL_UPDATES[row].items():
        put(changed["spec"], path, value)
    changed["metadata"]["resourceVersion"] = live.body["metadata"]["resourceVersion"]
    answer = update(server, namespace, changed)
    assert answer.ok, answer.message


def test_the_engine_type_cannot_be_changed(server: Server, namespace: str) -> None:
    live = server.create(namespace, make(SGLANG), dry_run=False)
    assert live.ok, live.message
    changed = make({"engine.type": "VLLM", "router.type": "SMG"})
    changed["metadata"]["resourceVersion"] = live.body["metadata"]["resourceVersion"]
    answer = update(server, namespace, changed)
    assert answer.status == 422
    assert "spec.engine.type" in answer.message
    assert "create a new KVServing" in answer.message


def test_an_update_that_breaks_a_rule_is_refused(server: Server, namespace: str) -> None:
    live = server.create(namespace, make(), dry_run=False)
    changed = make({"decode.startupTimeout": "0s"})
    changed["metadata"]["resourceVersion"] = live.body["metadata"]["resourceVersion"]
    answer = update(server, namespace, changed)
    assert answer.status == 422
    assert "startupTimeout" in answer.message


def update(server: Server, namespace: str, obj: Object) -> Any:
    path = f"/apis/kvserving.io/v1alpha1/namespaces/{namespace}/kvservings/x"
    return server.send("PUT", path, obj)
