"""What CEL cannot see, a running operator refuses: field and remedy in the status, nothing made."""

import json
import sys
from collections.abc import Iterator

import pytest

from kvserving_operator.cli.check import RefusedBy, check
from kvserving_operator.kube import paths
from kvserving_operator.plan import availability
from tests.component.refused_by_operator import BY_OPERATOR, NOT_YET
from tests.unit.api.builders import make
from tests.unit.stack import DEFAULTS

from .apiserver import Server
from .harness import Served, example

pytestmark = pytest.mark.takes(40)

NAMES = {row: f"row-{number}" for number, row in enumerate(BY_OPERATOR)}


@pytest.fixture(scope="module")
def refused(served: Served) -> Served:
    """All rows at once: one pass each, and the waiting is shared."""
    for row, name in NAMES.items():
        served.cluster.create(make(BY_OPERATOR[row][0], name=name))
    return served


@pytest.mark.parametrize("row", BY_OPERATOR)
def test_refused_by_the_operator(refused: Served, row: str) -> None:
    cluster, name = refused.cluster, NAMES[row]
    changes, field, remedy = BY_OPERATOR[row]
    said = cluster.wait_condition(name, "SpecValid", "False")["message"]
    assert field in said
    assert remedy in said
    assert cluster.condition(name, "Stalled")["status"] == "True"
    assert cluster.children(name) == {}
    findings = check(make(changes, name=name), DEFAULTS).findings
    assert {finding.by for finding in findings} == {RefusedBy.OPERATOR}
    assert said == "; ".join(str(finding.fault) for finding in findings)


def test_everything_that_is_not_available_yet_has_a_row() -> None:
    assert {field for field, _, _, _ in availability.NOT_YET} == {f for _, f, _ in NOT_YET.values()}


@pytest.fixture
def deep_reader() -> Iterator[None]:
    """This process reads the deep object as well."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(25_000)
    yield
    sys.setrecursionlimit(before)


def test_endless_nesting_of_one_object_is_no_matter_to_others(
    served: Served, deep_reader: None
) -> None:
    """The API server takes 10,000 levels; LIST and watch bring them to the operator."""
    cluster = served.cluster
    body = json.dumps(make({"engine.podTemplate.spec": "DEEP"}, name="deep"))
    depth = 9_900
    body = body.replace('"DEEP"', '{"x":' * depth + "1" + "}" * depth)
    server = Server(cluster.plane.kubeconfig)
    answer = server.create(cluster.namespace, body.encode(), dry_run=False)
    assert answer.status == 201, answer.message
    said = cluster.wait_condition("deep", "SpecValid", "False")["message"]
    assert "spec.engine.podTemplate: is nested more than" in said
    cluster.create(example("shallow"))
    cluster.settled("shallow")
    assert cluster.children("deep") == {}
    cluster.delete(paths.KVSERVINGS, "deep")
    assert served.operator.process.poll() is None
