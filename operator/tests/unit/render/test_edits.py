"""Exactly the right children change when a field does; every field of the API has a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kvserving_operator import plan
from kvserving_operator.api.crdgen import root_schema
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Manifest, Refusal
from kvserving_operator.render import render
from tests.unit.render.edits import EDITS, base, edited
from tests.unit.stack import AUTH, DEFAULTS, owner


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Dotted paths of what a user can set; lists and free-form objects count as one."""
    for name, inner in schema.get("properties", {}).items():
        yield from fields(inner, f"{path}.{name}" if path else name)
    if "properties" not in schema:
        yield path


def objects(obj: dict[str, Any]) -> dict[str, Manifest]:
    built = plan.build(KVServing.parse(obj), DEFAULTS)
    assert not isinstance(built, Refusal), built
    return {f"{m['kind']}/{m['metadata']['name']}": m for m in render(built, AUTH, owner())}


@cache
def before() -> dict[str, Manifest]:
    return objects(base())


def test_every_field_has_a_row() -> None:
    assert set(EDITS) == set(fields(root_schema()["properties"]["spec"]))


@pytest.mark.thorough
@pytest.mark.parametrize("field", EDITS)
def test_exactly_these_children_change(field: str) -> None:
    edit = EDITS[field]
    obj = edited(edit.changes)
    if edit.refused:
        built = plan.build(KVServing.parse(obj), DEFAULTS)
        assert isinstance(built, Refusal)
        assert edit.refused in {fault.field for fault in built.faults}
        return
    after = objects(obj)
    names = before().keys() | after.keys()
    assert {n for n in names if before().get(n) != after.get(n)} == edit.children
