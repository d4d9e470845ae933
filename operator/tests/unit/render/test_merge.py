import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.render.merge import merge

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "containers", "env", "volumes", "ports", "tolerations", "mountPath", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "containers", "env", "volumes", "x"]), JSON)


def names(items: list) -> list:
    return [item["name"] for item in items]


def test_objects_are_merged_deeply_and_scalars_replaced():
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(base, {"a": {"b": 9, "e": 4}}) == {"a": {"b": 9, "c": 2, "e": 4}, "d": 3}


def test_null_removes_a_key():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "d": None}) == {"a": {"c": 2}}
    assert merge({}, {"a": {"b": None, "c": 1}}) == {"a": {"c": 1}}


def test_containers_are_merged_by_name_in_place_and_new_ones_come_last():
    base = {"containers": [{"name": "engine", "image": "e"}, {"name": "b", "image": "b"}]}
    patch = {"containers": [{"name": "log", "image": "l"}, {"name": "engine", "workingDir": "/w"}]}
    merged = merge(base, patch)["containers"]
    assert names(merged) == ["engine", "b", "log"]
    assert merged[0] == {"name": "engine", "image": "e", "workingDir": "/w"}


def test_environment_is_merged_by_name_within_a_container():
    base = {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}
    patch = {
        "containers": [
            {"name": "c", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]}
        ]
    }
    assert merge(base, patch)["containers"][0]["env"] == [
        {"name": "A", "value": "3"},
        {"name": "B", "value": "2"},
    ]


def test_mounts_are_merged_by_path_and_ports_by_number_and_protocol():
    base = {
        "volumeMounts": [{"mountPath": "/a", "name": "v"}],
        "ports": [{"containerPort": 1, "protocol": "TCP", "name": "x"}],
    }
    patch = {
        "volumeMounts": [{"mountPath": "/a", "name": "w"}, {"mountPath": "/b", "name": "v"}],
        "ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 1, "protocol": "UDP"}],
    }
    merged = merge(base, patch)
    assert merged["volumeMounts"] == [
        {"mountPath": "/a", "name": "w"},
        {"mountPath": "/b", "name": "v"},
    ]
    assert merged["ports"] == [
        {"containerPort": 1, "protocol": "TCP", "name": "y"},
        {"containerPort": 1, "protocol": "UDP"},
    ]


def test_a_volume_that_is_named_again_has_the_new_source_only():
    base = {"volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    assert merge(base, patch)["volumes"] == [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    ]


def test_tolerations_add_up_without_repeating():
    first = merge({}, {"tolerations": [{"key": "a"}]})
    second = merge(first, {"tolerations": [{"key": "b"}, {"key": "a"}]})
    assert second["tolerations"] == [{"key": "a"}, {"key": "b"}]


@pytest.mark.parametrize("field", ["command", "args", "add", "matchExpressions"])
def test_other_lists_are_replaced(field: str):
    assert merge({field: ["a", "b"]}, {field: ["c"]}) == {field: ["c"]}


@pytest.mark.thorough
@settings(max_examples=30)
@given(OBJECTS, OBJECTS)
def test_merging_changes_neither_side(base: dict, patch: dict):
    before = copy.deepcopy((base, patch))
    merge(base, patch)
    assert (base, patch) == before


@pytest.mark.thorough
@settings(max_examples=30)
@given(OBJECTS, OBJECTS)
def test_merging_again_changes_nothing(base: dict, patch: dict):
    once = merge(base, patch)
    assert merge(once, patch) == once or _has_repeated_elements(patch)


def _has_repeated_elements(value: object) -> bool:
    """A list in which two elements have one identity merges into itself differently."""
    if isinstance(value, dict):
        return any(_has_repeated_elements(item) for item in value.values())
    if isinstance(value, list):
        return len(value) > 1 or any(_has_repeated_elements(item) for item in value)
    return False
