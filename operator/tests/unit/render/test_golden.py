"""What each case becomes, object for object, and that Kubernetes knows every field of it.

``pytest operator/tests/unit/render --update-golden`` writes the files anew; read the difference
before it is committed: every line of it reaches clusters.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from kvserving_operator import plan
from kvserving_operator.api.conditions import Reason
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Refusal
from kvserving_operator.render import render
from tests.unit.render import golden, schemas
from tests.unit.stack import AUTH, DEFAULTS, owner

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))


NOT_AVAILABLE_YET = {
    "glm-pcp8": {"spec.autoscaling.mode"},
}
"""Cases that are rendered though they are refused, with the fields that are the reason."""


@pytest.mark.parametrize("case", golden.CASES)
def test_a_case_is_served_or_waits_for_the_features_named_here(case: str):
    built = plan.build(golden.load(case), DEFAULTS)
    faults = built.faults if isinstance(built, Refusal) else ()
    assert {fault.field for fault in faults} == NOT_AVAILABLE_YET.get(case, set())
    assert {fault.reason for fault in faults} <= {Reason.NOT_AVAILABLE_YET}


@pytest.mark.parametrize("case", golden.CASES)
def test_objects_are_as_committed(case: str, request: pytest.FixtureRequest):
    text = golden.dump(golden.objects(case))
    committed = golden.FOLDER / case / "objects.yaml"
    if request.config.getoption("--update-golden"):
        committed.write_text(text)
    assert text == committed.read_text()


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize(
    "version",
    [
        *(pytest.param(version, marks=pytest.mark.thorough) for version in schemas.VERSIONS[:-1]),
        schemas.VERSIONS[-1],
    ],
)
def test_kubernetes_knows_every_field(case: str, version: str):
    for manifest in golden.objects(case):
        found = schemas.faults(manifest, version)
        assert not found, f"{manifest['kind']} {manifest['metadata']['name']}: {found}"


def test_the_schemas_are_strict():
    manifest = golden.objects(golden.CASES[0])[0]
    assert schemas.faults({**manifest, "unknown": 1}, schemas.VERSIONS[0])


@pytest.mark.parametrize("case", golden.CASES)
def test_objects_are_plain_json(case: str):
    manifests = list(golden.objects(case))
    assert json.loads(json.dumps(manifests)) == manifests


def not_available(path: Path) -> set[str]:
    """The fields that the example's header says are refused in this version."""
    found = re.search(r"^# Not available yet: (.+)$", path.read_text(), re.MULTILINE)
    return set(found[1].split(", ")) if found else set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_served_or_refused_for_the_fields_that_its_header_names(path: Path):
    documents = [d for d in yaml.safe_load_all(path.read_text()) if d["kind"] == "KVServing"]
    assert len(documents) == 1
    built = plan.build(KVServing.parse(documents[0]), DEFAULTS)
    faults = built.faults if isinstance(built, Refusal) else ()
    assert {fault.field for fault in faults} == not_available(path), [str(f) for f in faults]
    assert {fault.reason for fault in faults} <= {Reason.NOT_AVAILABLE_YET}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_an_example_becomes_is_known_to_kubernetes(path: Path):
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "KVServing":
            placed = KVServing.parse(document)
            objects = render(golden.planned(placed), AUTH, owner(placed.metadata.name))
            found = [fault for m in objects for fault in schemas.faults(m, schemas.VERSIONS[-1])]
            assert not found


@pytest.mark.parametrize(
    ("example", "case"), [("quickstart", "quickstart-cpu"), ("quickstart-pcp", "quickstart-pcp")]
)
def test_the_quickstarts_are_golden_cases(example: str, case: str):
    path = next(path for path in EXAMPLES if path.stem == example)
    assert KVServing.parse(yaml.safe_load(path.read_text())) == golden.load(case)
