"""From pydantic's JSON schema to the structural schema that a CRD may hold. Pure.

``model_json_schema`` speaks JSON Schema 2020-12; apiextensions takes a subset of OpenAPI 3.0 with
extensions. Whatever has no faithful translation is an error here, not a surprise on the server.
"""

from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from kvserving_operator.api.types import LIST_TYPE, PRESERVE, VALIDATIONS

Schema: TypeAlias = dict[str, Any]

INT_OR_STRING: Final = "x-kubernetes-int-or-string"

_DROPPED: Final = frozenset(
    {"title", "examples", "deprecated", "$defs", "$schema", "readOnly", "writeOnly"}
    | {"patternProperties", "propertyNames", "prefixItems"}
)
_KEPT: Final = frozenset(
    {"type", "description", "default", "enum", "format", "required", "multipleOf"}
    | {"minimum", "maximum", "minLength", "maxLength", "pattern"}
    | {"minItems", "maxItems", "minProperties", "maxProperties"}
)
# Formats that the apiserver validates; it ignores the others, so we do not promise them.
_FORMATS: Final = frozenset({"date-time", "date", "byte", "int32", "int64", "uuid", "ipv4", "ipv6"})
# The order of keys in the output; extensions come last, in alphabetical order.
_ORDER: Final = (
    *("description", "type", "format", "default", "enum", "pattern", "minLength", "maxLength"),
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "required"),
    *("properties", "additionalProperties", "items"),
)


class SchemaError(ValueError):
    """The model uses something that a CRD cannot say."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of ``model``, under its aliases, self-contained."""
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(source, source.get("$defs", {}), ())


def without_defaults(schema: Schema) -> Schema:
    """The schema with no ``default`` at any level: status is written, never defaulted."""
    out = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in out:
        out["properties"] = {k: without_defaults(v) for k, v in out["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = without_defaults(out[key])
    return out


def _convert(node: Schema, defs: Schema, trail: tuple[str, ...]) -> Schema:
    node, trail, recursive = _inline(node, defs, trail)
    if recursive:
        return _ordered({"type": "object", PRESERVE: True, **_described(node)})
    if "anyOf" in node:
        return _convert_union(node, defs, trail)
    out: Schema = {}
    for key, value in node.items():
        if key.startswith("x-kubernetes-"):
            out[key] = value
        elif key in _KEPT:
            out |= _kept(key, value)
        elif key not in _DROPPED:
            out |= _translated(key, value, node, defs, trail)
    return _ordered(out)


def _inline(
    node: Schema, defs: Schema, trail: tuple[str, ...]
) -> tuple[Schema, tuple[str, ...], bool]:
    """Replace a ``$ref`` by what it names; keys beside the ``$ref`` win."""
    while "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        node = {**defs[name], **siblings}
        if name in trail:
            return node, trail, True
        trail = (*trail, name)
    return node, trail, False


def _convert_union(node: Schema, defs: Schema, trail: tuple[str, ...]) -> Schema:
    """Collapse Optional, and integer-or-string; nothing else has a structural form."""
    siblings = {key: value for key, value in node.items() if key != "anyOf"}
    if "default" in siblings and siblings["default"] is None:
        del siblings["default"]
    members = [_inline(m, defs, trail)[0] for m in node["anyOf"]]
    members = [m for m in members if m.get("type") != "null"]
    if len(members) == 1:
        return _convert({**members[0], **siblings}, defs, trail)
    if len(members) == len({m.get("type") for m in members} & {"integer", "string"}):
        merged: Schema = {}
        for member in members:
            merged |= {k: v for k, v in member.items() if k != "type"}
        return _convert({**merged, **siblings, INT_OR_STRING: True}, defs, trail)
    raise SchemaError(f"{'.'.join(trail)}: a union other than Optional or int-or-string")


def _kept(key: str, value: Any) -> Schema:
    if key == "default" and value is None:
        return {}
    if key == "format" and value not in _FORMATS:
        return {}
    if key == "description":
        return {key: " ".join(value.split())}
    return {key: value}


def _translated(key: str, value: Any, node: Schema, defs: Schema, trail: tuple[str, ...]) -> Schema:
    out: Schema
    match key:
        case "const":
            out = {"enum": [value]}
        case "exclusiveMinimum" | "exclusiveMaximum":
            out = {key.removeprefix("exclusive").lower(): value, key: True}
        case "uniqueItems":
            out = {LIST_TYPE: "set"} if value else {}
        case "items":
            out = {key: _convert(value, defs, trail)}
        case "properties":
            out = {key: _properties(node, defs, trail)}
        case "additionalProperties":
            out = _additional(value, node, defs, trail)
        case _:
            raise SchemaError(f"{'.'.join(trail) or 'root'}: no structural form for {key!r}")
    return out


def _properties(node: Schema, defs: Schema, trail: tuple[str, ...]) -> Schema:
    """The properties; one that a default factory builds gets its default at this level too.

    The apiserver fills nested defaults only into an object that exists, so every level needs its
    own.
    """
    out: Schema = {}
    for name, prop in node["properties"].items():
        converted = _convert(prop, defs, (*trail, name))
        # pydantic shows plain defaults, null ones too; without any, a factory makes the value.
        if name not in node.get("required", ()) and "default" not in prop:
            converted["default"] = _factory_default(converted, (*trail, name))
        out[name] = _ordered(converted)
    return out


def _factory_default(schema: Schema, trail: tuple[str, ...]) -> Any:
    """``{}`` or ``[]``; the nested defaults written out where the object carries CEL rules.

    The apiserver evaluates the rules on the default itself, before it fills in nested ones.
    """
    match schema.get("type"):
        case "array":
            return []
        case "object" if VALIDATIONS in schema:
            return _written_out(schema)
        case "object":
            return {}
    raise SchemaError(f"{'.'.join(trail)}: a default that the schema cannot show")


def _written_out(schema: Schema) -> Schema:
    return {
        name: _written_out(prop) if "properties" in prop else prop["default"]
        for name, prop in schema.get("properties", {}).items()
        if "default" in prop
    }


def _additional(value: Any, node: Schema, defs: Schema, trail: tuple[str, ...]) -> Schema:
    if isinstance(value, dict) and value:
        return {"additionalProperties": _convert(value, defs, trail)}
    if value is False or "properties" in node:
        return {}  # pruning does the one; an extension of the model says the other
    return {PRESERVE: True}


def _described(node: Schema) -> Schema:
    return _kept("description", node["description"]) if "description" in node else {}


def _ordered(schema: Schema) -> Schema:
    known = {key: schema[key] for key in _ORDER if key in schema}
    return known | {key: schema[key] for key in sorted(schema) if key not in known}
