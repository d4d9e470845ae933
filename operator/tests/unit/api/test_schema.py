"""The table of what pydantic emits and what a CRD needs, row by row."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from kvserving_operator.api.schema import SchemaError, structural_schema, without_defaults
from kvserving_operator.api.types import (
    APIModel,
    CELRule,
    EnvList,
    IntOrPercent,
    PassThrough,
    validated_by,
)


class Colour(StrEnum):
    """A colour."""

    RED = "Red"
    OFF = "Off"


class Leaf(APIModel):
    """A leaf."""

    size: int = Field(default=3, description="Size of the leaf.")


class Tree(APIModel):
    """A tree."""

    leaf: Leaf = Field(default_factory=Leaf, description="The leaf of this tree.")


def prop(model: type[BaseModel], name: str) -> dict[str, Any]:
    found: dict[str, Any] = structural_schema(model)["properties"][name]
    return found


def everything(schema: Any) -> list[dict[str, Any]]:
    """Every mapping inside the schema."""
    if isinstance(schema, list):
        return [x for item in schema for x in everything(item)]
    if not isinstance(schema, dict):
        return []
    return [schema, *[x for value in schema.values() for x in everything(value)]]


def test_references_are_inlined_and_siblings_win() -> None:
    leaf = prop(Tree, "leaf")
    assert leaf["description"] == "The leaf of this tree."
    assert leaf["properties"]["size"] == {
        "description": "Size of the leaf.",
        "type": "integer",
        "default": 3,
    }
    assert not any("$ref" in x or "$defs" in x for x in everything(structural_schema(Tree)))


def test_defaults_stand_on_every_level() -> None:
    assert prop(Tree, "leaf")["default"] == {}


def test_a_default_with_rules_is_written_out_for_the_rules_to_see() -> None:
    @validated_by(CELRule(rule="self.size > 0", message="size must be above 0: raise it"))
    class Ruled(APIModel):
        """A ruled one."""

        size: int = 3
        optional: int | None = None
        inner: Leaf = Field(default_factory=Leaf)

    class Parent(APIModel):
        """Its parent."""

        ruled: Ruled = Field(default_factory=Ruled)
        optional: Ruled | None = None

    ruled = prop(Parent, "ruled")
    assert ruled["default"] == {"size": 3, "inner": {"size": 3}}
    assert ruled["x-kubernetes-validations"] == [
        {"rule": "self.size > 0", "message": "size must be above 0: raise it"}
    ]
    assert "default" not in prop(Parent, "optional")


def test_recursion_is_left_open() -> None:
    class Node(BaseModel):
        """A node."""

        children: list["Node"] = Field(default_factory=list)

    children = prop(Node, "children")
    assert children["items"] == {
        "description": "A node.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_optional_collapses_without_null() -> None:
    class Model(BaseModel):
        a: int | None = Field(default=None, ge=1, description="A.")
        b: Leaf | None = Field(default=None, description="B.")

    assert prop(Model, "a") == {"description": "A.", "type": "integer", "minimum": 1}
    assert prop(Model, "b")["description"] == "B."
    assert "default" not in prop(Model, "b")
    assert not any("nullable" in x or "anyOf" in x for x in everything(structural_schema(Model)))


def test_integer_or_string() -> None:
    class Model(BaseModel):
        a: int | str = 1
        b: IntOrPercent | None = None

    assert prop(Model, "a") == {"default": 1, "x-kubernetes-int-or-string": True}
    b = prop(Model, "b")
    assert b["x-kubernetes-int-or-string"] is True
    assert "type" not in b
    assert b["minimum"] == 1
    assert b["pattern"].endswith("%$")


def test_a_constant_is_an_enum_of_one() -> None:
    class Model(BaseModel):
        a: Literal["x"] = "x"

    assert prop(Model, "a") == {"type": "string", "default": "x", "enum": ["x"]}


def test_enums_keep_their_order() -> None:
    class Model(BaseModel):
        a: Colour = Field(default=Colour.OFF, description="Its colour.")

    assert prop(Model, "a") == {
        "description": "Its colour.",
        "type": "string",
        "default": "Off",
        "enum": ["Red", "Off"],
    }


def test_exclusive_bounds_take_the_boolean_form() -> None:
    class Model(BaseModel):
        a: int = Field(default=1, gt=0, lt=9)

    assert prop(Model, "a") == {
        "type": "integer",
        "default": 1,
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 9,
        "exclusiveMaximum": True,
    }


def test_what_a_crd_refuses_is_dropped() -> None:
    class Model(BaseModel):
        """A model."""

        model_config = ConfigDict(extra="forbid", title="A title")
        a: int = Field(default=1, title="T", examples=[1], deprecated=True)
        b: tuple[int, ...] = Field(default=(), json_schema_extra={"uniqueItems": True})
        c: Annotated[str, Field(json_schema_extra={"format": "duration"})] = ""
        d: Annotated[str, Field(json_schema_extra={"format": "date-time"})] = ""

    assert prop(Model, "a") == {"type": "integer", "default": 1}
    assert prop(Model, "b")["x-kubernetes-list-type"] == "set"
    assert "format" not in prop(Model, "c")
    assert prop(Model, "d")["format"] == "date-time"
    forbidden = {"title", "examples", "deprecated", "uniqueItems"}
    schema = structural_schema(Model)
    assert schema.get("additionalProperties") is None
    assert not any(forbidden & set(x) for x in everything(schema))


def test_maps_and_open_objects() -> None:
    class Model(BaseModel):
        a: Mapping[str, int] = Field(default_factory=dict, max_length=4)
        b: dict[str, Any] = Field(default_factory=dict)
        c: PassThrough = Field(default_factory=dict)

    assert prop(Model, "a") == {
        "type": "object",
        "default": {},
        "maxProperties": 4,
        "additionalProperties": {"type": "integer"},
    }
    opened = {"type": "object", "default": {}, "x-kubernetes-preserve-unknown-fields": True}
    assert prop(Model, "b") == opened
    assert prop(Model, "c") == opened


def test_a_list_map_names_its_keys() -> None:
    class Model(BaseModel):
        env: EnvList = ()

    env = prop(Model, "env")
    assert env["x-kubernetes-list-type"] == "map"
    assert env["x-kubernetes-list-map-keys"] == ["name"]
    assert env["items"]["required"] == ["name"]


def test_what_has_no_structural_form_is_an_error() -> None:
    class Union(BaseModel):
        a: int | list[int] = 1

    class Discriminated(BaseModel):
        class A(BaseModel):
            kind: Literal["a"]

        class B(BaseModel):
            kind: Literal["b"]

        one: A | B = Field(discriminator="kind")

    class Factory(BaseModel):
        a: int = Field(default_factory=lambda: 3)

    with pytest.raises(SchemaError, match="union"):
        structural_schema(Union)
    with pytest.raises(SchemaError, match=r"one: no structural form for '(discriminator|oneOf)'"):
        structural_schema(Discriminated)
    with pytest.raises(SchemaError, match="a: a default that the schema cannot show"):
        structural_schema(Factory)


def test_status_has_no_defaults() -> None:
    class Model(BaseModel):
        many: list[Leaf] = Field(default_factory=list)
        by_name: dict[str, Leaf] = Field(default_factory=dict)
        tree: Tree = Field(default_factory=Tree)

    assert any("default" in x for x in everything(structural_schema(Model)))
    assert not any("default" in x for x in everything(without_defaults(structural_schema(Model))))
