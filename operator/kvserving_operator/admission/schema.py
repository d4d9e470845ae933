"""What the structural schema has against an object, as faults that a person can act on. Pure."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from jsonschema import Draft7Validator, ValidationError

from kvserving_operator.admission.texts import named, shown
from kvserving_operator.api import duration, quantity
from kvserving_operator.api.crdgen import root_schema
from kvserving_operator.api.schema import INT_OR_STRING, Schema
from kvserving_operator.api.types import LIST_MAP_KEYS, LIST_TYPE, PRESERVE
from kvserving_operator.engines.faults import Fault, invalid

_EXAMPLES: Final = {
    duration.PATTERN: "write a duration such as 30m, 1h30m or 50ms",
    quantity.BYTES_PATTERN: "write a size such as 480Gi",
}
_TYPES: Final = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}


@cache
def object_schema() -> Schema:
    """The schema of a KVServing as the CRD has it."""
    return root_schema()


def schema_faults(spec: Any) -> Iterator[Fault]:
    """Everything that the schema has against a defaulted ``spec``, unknown fields included."""
    schema = object_schema()["properties"]["spec"]
    yield from _unknown(schema, spec, "spec")
    mistyped: set[str] = set()
    for error in sorted(_validator().iter_errors(spec), key=_order):
        if error.json_path in mistyped:
            continue  # what has the wrong type breaks every other keyword as well
        if error.validator == "type":
            mistyped.add(error.json_path)
        yield from _described(error)
    yield from _duplicates(schema, spec, "spec")


@cache
def _validator() -> Draft7Validator:
    return Draft7Validator(_as_json_schema(object_schema()["properties"]["spec"]))


def _as_json_schema(schema: Schema) -> Schema:
    """What a structural schema leaves to extensions, and ``$``, which Python reads differently."""
    out = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get(INT_OR_STRING):
        out["type"] = ["integer", "string"]
    if "pattern" in schema:
        out["pattern"] = schema["pattern"].removesuffix("$") + r"\Z"
    if "properties" in schema:
        out["properties"] = {k: _as_json_schema(v) for k, v in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _as_json_schema(schema[key])
    return out


def _order(error: ValidationError) -> tuple[list[str], bool]:
    return [str(part) for part in error.absolute_path], error.validator != "type"


def path_text(root: str, parts: Sequence[str | int]) -> str:
    """A path as Kubernetes writes it: ``spec.engine.env[0].name``."""
    return root + "".join(f"[{p}]" if isinstance(p, int) else f".{named(p)}" for p in parts)


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    """Fields that the schema does not have; kubectl and the operator refuse them."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(schema.get("items", {}), item, f"{path}[{index}]")
    if not isinstance(value, Mapping):
        return
    properties = schema.get("properties", {})
    closed = bool(properties) and not schema.get(PRESERVE)
    for name, item in value.items():
        if name in properties:
            yield from _unknown(properties[name], item, f"{path}.{name}")
        elif closed:
            near = difflib.get_close_matches(name, properties, n=1)
            remedy = f"did you mean {near[0]}?" if near else "remove it"
            yield invalid(f"{path}.{named(name)}", "unknown field", remedy)


def _duplicates(schema: Schema, value: Any, path: str) -> Iterator[Fault]:
    """Elements that a set, or a map by key, holds twice."""
    if isinstance(value, Mapping):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from _duplicates(inner, value[name], f"{path}.{name}")
    if not isinstance(value, list) or schema.get(LIST_TYPE) not in {"set", "map"}:
        return
    keys = schema.get(LIST_MAP_KEYS)
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = [item.get(k) for k in keys] if keys and isinstance(item, Mapping) else item
        if identity in seen:
            text = shown(identity[0] if keys else identity)
            yield invalid(f"{path}[{index}]", f"Duplicate value {text}", "remove one of them")
        seen.append(identity)


def _described(error: ValidationError) -> Iterator[Fault]:
    path = path_text("spec", list(error.absolute_path))
    found: Any = error.instance
    limit: Any = error.validator_value
    match error.validator:
        case "required":
            missing = error.message.split("'")[1]
            yield invalid(f"{path}.{missing}", "is required", "add it")
        case "type":
            yield invalid(path, f"{shown(found)} is not {_wanted(limit)}", _type_remedy(error))
        case "enum":
            choices = ", ".join(str(choice) or '""' for choice in limit)
            yield invalid(path, f"{shown(found)} is not supported", f"choose one of {choices}")
        case "pattern":
            pattern = limit.removesuffix(r"\Z") + "$"
            remedy = _EXAMPLES.get(pattern, "correct it")
            yield invalid(path, f"{shown(found)} does not match {pattern}", remedy)
        case "multipleOf":
            yield invalid(path, f"{found} is not a multiple of {limit}", "choose a multiple")
        case validator:
            yield _out_of_bounds(path, str(validator), found, limit)


_BOUNDS: Final = {
    "minimum": ("{found} is below {limit}", "raise it"),
    "maximum": ("{found} is above {limit}", "lower it"),
    "minLength": ("is shorter than {limit} characters", "write it out"),
    "maxLength": ("is longer than {limit} characters", "shorten it"),
    "minItems": ("has fewer than {limit} elements", "add one"),
    "maxItems": ("has more than {limit} elements", "remove some"),
    "maxProperties": ("has more than {limit} entries", "remove some"),
}


def _out_of_bounds(path: str, validator: str, found: Any, limit: Any) -> Fault:
    what, remedy = _BOUNDS[validator]
    return invalid(path, what.format(found=shown(found), limit=limit), remedy)


def _wanted(types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    return " or ".join(_TYPES[name] for name in names)


def _type_remedy(error: ValidationError) -> str:
    """A bare Off is false in YAML 1.1: the commonest wrong type of all."""
    choices = error.schema.get("enum", ()) if isinstance(error.schema, Mapping) else ()
    if isinstance(error.instance, bool) and "Off" in choices:
        return 'quote it, as in "Off": YAML reads the bare word as true or false'
    if error.validator_value == "string" and isinstance(error.instance, int | float):
        pattern = error.schema.get("pattern", "") if isinstance(error.schema, Mapping) else ""
        return "write it with its unit, as in 16Gi" if "Gi" in str(pattern) else "quote it"
    wanted: Any = error.validator_value
    return f"write {_wanted(wanted)}"
