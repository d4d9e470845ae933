"""The API server's verdict without one; a component test compares every row with a real one."""

from typing import Any

import pytest

from kvserving_operator.admission import admit
from kvserving_operator.admission.cel import rule_faults
from kvserving_operator.admission.defaults import defaulted
from kvserving_operator.admission.schema import object_schema
from kvserving_operator.admission.verdict import related
from kvserving_operator.api.types import VALIDATIONS
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.engines.faults import Fault
from tests.component.admission_rows import ACCEPTED
from tests.component.refused_data_path import DATA_PATH
from tests.component.refused_operation import OPERATION
from tests.unit.api.builders import ABSENT, make

# Every tenth of each here, all of them against the server itself.
SAMPLE = dict(list((DATA_PATH | OPERATION).items())[::10])


def found(changes: dict[str, Any], **rest: Any) -> dict[str, Fault]:
    return {fault.field: fault for fault in admit(make(changes) | rest).faults}


@pytest.mark.parametrize("row", SAMPLE)
def test_what_the_server_refuses_is_refused(row: str) -> None:
    changes, field, _ = SAMPLE[row]
    assert any(field in path for path in found(changes)), found(changes)


@pytest.mark.parametrize("row", list(ACCEPTED)[::6])
def test_what_the_server_takes_is_taken(row: str) -> None:
    verdict = admit(make(ACCEPTED[row]))
    assert verdict.faults == ()
    assert KVServing.parse(verdict.stored).to_dict()["spec"] == verdict.stored["spec"]


def test_all_faults_are_found_at_once() -> None:
    changes = {
        "engine.imagee": "x",
        "decode.parallelism.tensor": "4",
        "model.servedNames": ["a", "a"],
        "kvCache.remote.type": "Managed",
        "engine.env": [{"name": "A"}, {"name": "A"}],
    }
    fields = set(found(changes, metadata={"name": "Bad"}))
    assert fields == {
        "metadata.name",
        "spec.engine.imagee",
        "spec.decode.parallelism.tensor",
        "spec.model.servedNames",
        "spec.model.attention",
        "spec.kvCache.remote.memoryPerInstance",
        "spec.engine.env[1]",
    }


def test_a_fault_says_what_and_what_to_do() -> None:
    fault = found({"kvCache.remote": {"type": "Managed"}, "model.attention": "MLA"})
    text = str(fault["spec.kvCache.remote.memoryPerInstance"])
    assert text == (
        "spec.kvCache.remote.memoryPerInstance: is required when type is Managed; "
        "set the memory of one Valkey, for example 16Gi"
    )


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"model.name": ABSENT}, "spec.model.name", "add it"),
        ({"engine.imagee": "x"}, "spec.engine.imagee", "did you mean image?"),
        ({"engine.zzz": "x"}, "spec.engine.zzz", "remove it"),
        ({"tuning.mode": False}, "spec.tuning.mode", 'quote it, as in "Off"'),
        ({"model.revision": 1.5}, "spec.model.revision", "quote it"),
        (
            {"kvCache.local.sizePerReplica": 16},
            "spec.kvCache.local.sizePerReplica",
            "write it with its unit, as in 16Gi",
        ),
        ({"decode.drain.timeout": "1d"}, "spec.decode.drain.timeout", "write a duration"),
        ({"kvCache.local.sizePerReplica": "1GB"}, "spec.kvCache.local.sizePerReplica", "a size"),
        ({"router.policy": "Best"}, "spec.router.policy", "choose one of Random"),
        ({"kvCache.chunkTokens": 100}, "spec.kvCache.chunkTokens", "choose a multiple"),
        ({"decode.replicas": -1}, "spec.decode.replicas", "raise it"),
        ({"decode.replicas": 10**30}, "spec.decode.replicas", "lower it"),
        ({"model.name": "x" * 300}, "spec.model.name", "shorten it"),
        ({"transfer.nixl.backends": []}, "spec.transfer.nixl.backends", "add one"),
        ({"engine.features": ["GraniKV"] * 2}, "spec.engine.features[1]", "remove one"),
        ({"rollout.maxUnavailable": []}, "spec.rollout.maxUnavailable", "whole number or a text"),
        ({"engine.extraArgs": [None]}, "spec.engine.extraArgs[0]", "write a text"),
    ],
)
def test_the_schema_names_field_and_remedy(
    changes: dict[str, Any], field: str, remedy: str
) -> None:
    faults = found(changes)
    assert set(faults) == {field}
    assert remedy in faults[field].remedy


@pytest.mark.parametrize(
    ("rest", "field"),
    [
        ({"apiVersion": "kvserving.io/v1"}, "apiVersion"),
        ({"kind": "KVServings"}, "kind"),
        ({"extra": 1}, "extra"),
        ({"metadata": None}, "metadata"),
        ({"metadata": {}}, "metadata.name"),
        ({"metadata": {"name": 7}}, "metadata.name"),
        ({"metadata": {"name": "a b"}}, "metadata.name"),
        ({"metadata": {"name": "x" * 45}}, "metadata.name"),
        ({"metadata": {"name": "x", "namespace": "A"}}, "metadata.namespace"),
        ({"metadata": {"name": "x", "lables": {}}}, "metadata.lables"),
        ({"metadata": {"name": "x", "labels": []}}, "metadata.labels"),
        ({"metadata": {"name": "x", "labels": {"a": 1}}}, "metadata.labels.a"),
        ({"metadata": {"name": "x", "labels": {"a": "b c"}}}, "metadata.labels.a"),
        ({"metadata": {"name": "x", "labels": {"-a": "b"}}}, "metadata.labels"),
        (
            {"metadata": {"name": "x", "annotations": {"a": "x" * 300_000}}},
            "metadata.annotations",
        ),
        ({"spec": None}, "spec"),
        ({"spec": "x"}, "spec"),
        ({"spec": []}, "spec"),
    ],
)
def test_the_head_is_looked_at_too(rest: dict[str, Any], field: str) -> None:
    assert set(found({}, **rest)) == {field}


def test_a_generated_name_is_as_good_as_one() -> None:
    assert found({}, metadata={"generateName": "glm-"}) == {}


def test_nulls_count_as_absent_and_defaults_fill_every_level() -> None:
    schema = {
        "properties": {
            "a": {"properties": {"b": {"default": 1}, "c": {}}, "default": {}},
            "list": {"items": {"properties": {"d": {"default": 2}}}},
            "map": {"additionalProperties": {"type": "string"}},
            "free": {},
        }
    }
    value = {"list": [{"d": None}], "map": {"k": None}, "free": {"x": None}, "a": {"c": None}}
    assert defaulted(schema, value) == {
        "a": {"b": 1},
        "list": [{"d": 2}],
        "map": {},
        "free": {"x": None},
    }
    assert value["a"] == {"c": None}, "what was given is left as it is"


def test_every_rule_on_a_new_object_can_be_evaluated() -> None:
    """A typo would make a rule that is never broken: each must say yes to something."""

    def rules(schema: dict[str, Any]) -> list[str]:
        own = [rule["rule"] for rule in schema.get(VALIDATIONS, ())]
        parts = [*schema.get("properties", {}).values(), schema.get("items"), None]
        return own + [rule for part in parts if isinstance(part, dict) for rule in rules(part)]

    from kvserving_operator.admission import cel  # noqa: PLC0415 - its private parts

    stated = rules(object_schema())
    assert len(stated) > 60
    for rule in stated:
        if "oldSelf" not in rule:
            cel._program(rule)


def test_a_rule_that_cannot_be_evaluated_is_not_broken() -> None:
    schema = {VALIDATIONS: [{"rule": "self.a.b > 1", "message": "a.b must be above 1: raise it"}]}
    assert list(rule_faults(schema, {"a": "text"}, "spec")) == []
    assert list(rule_faults(schema, {"a": {"b": 2}}, "spec")) == []
    assert [f.remedy for f in rule_faults(schema, {"a": {"b": 1}}, "spec")] == ["raise it"]


def test_fields_are_related_by_whole_parts() -> None:
    assert related("spec.engine", "spec.engine.env[0]")
    assert related("spec.engine.env[0]", "spec.engine.env")
    assert not related("spec.engine.env", "spec.engine.environment")
    assert not related("spec.decode", "spec.prefill")


def test_values_of_strangers_stay_on_one_line() -> None:
    fault = found({"model.name": "a\x1b[31m\nb\u202e" + "y" * 500})["spec.model.name"]
    assert str(fault).isprintable()
    assert len(str(fault)) < 300
