"""What the real API server refuses, with field and remedy in the message, and what it lets in."""

from collections.abc import Iterator
from typing import Any

import pytest

from kvserving_operator.api.crdgen import root_schema
from kvserving_operator.api.v1alpha1 import KVServing
from tests.component.admission_rows import (
    ACCEPTED,
    ILLEGAL_UPDATES,
    LEGAL_UPDATES,
    MANAGED,
    PCP,
    SGLANG,
    STORE,
)
from tests.component.apiserver import ROOT, Object, Server, kvserving_in, objects
from tests.component.refused_data_path import DATA_PATH
from tests.component.refused_operation import OPERATION
from tests.unit.api.builders import ABSENT, make, put

REFUSED = DATA_PATH | OPERATION
BEFORE = PCP | STORE | MANAGED | {"kvCache.local.sizePerReplica": "1Gi"}
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


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
    answer = server.create(home, kvserving_in(path))
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


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[Object]:
    """An object with PCP and a tier, for dry runs of changes."""
    live = server.create("default", make(BEFORE, name="stored"), dry_run=False)
    assert live.status == 201, live.message
    yield live.body
    server.send("DELETE", f"{objects('default')}/stored")


@pytest.mark.parametrize("row", LEGAL_UPDATES)
def test_legal_updates(server: Server, stored: Object, row: str) -> None:
    answer = update(server, stored, LEGAL_UPDATES[row])
    assert answer.ok, answer.message


@pytest.mark.parametrize("row", ILLEGAL_UPDATES)
def test_illegal_updates(server: Server, stored: Object, row: str) -> None:
    changes, field, remedy = ILLEGAL_UPDATES[row]
    answer = update(server, stored, changes)
    assert answer.status == 422, answer
    assert field in answer.message
    assert remedy in answer.message


@pytest.mark.parametrize(("before", "after"), [("SGLang", "VLLM"), ("VLLM", "SGLang")])
def test_the_engine_type_cannot_be_changed(
    server: Server, namespace: str, before: str, after: str
) -> None:
    """Not by leaving it out either, which gives the default."""
    changes = SGLANG | {"engine.type": before}
    live = server.create(namespace, make(changes), dry_run=False)
    assert live.ok, live.message
    for value in (after, ABSENT) if after == "VLLM" else (after,):
        changed = make(changes | {"engine.type": value})
        changed["metadata"]["resourceVersion"] = live.body["metadata"]["resourceVersion"]
        answer = server.send("PUT", f"{objects(namespace)}/x", changed)
        assert answer.status == 422
        assert "spec.engine.type" in answer.message
        assert "create a new KVServing" in answer.message


def update(server: Server, stored: Object, changes: dict[str, Any]) -> Any:
    """A dry run of the object with changes."""
    changed = make(BEFORE, name="stored")
    for path, value in changes.items():
        put(changed["spec"], path, value)
    changed["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return server.send("PUT", f"{objects('default')}/stored", changed, dryRun="All")
