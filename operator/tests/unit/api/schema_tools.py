"""Test-only doubles of what the apiserver does with a structural schema, and a value generator."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft7Validator

Schema = dict[str, Any]


def with_defaults(schema: Schema, value: Any) -> Any:
    """The value with the defaults of the schema filled in, level by level."""
    if isinstance(value, dict):
        out = dict(value)
        for name, prop in schema.get("properties", {}).items():
            if name not in out and "default" in prop:
                out[name] = deepcopy(prop["default"])
            if name in out:
                out[name] = with_defaults(prop, out[name])
        return out
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), item) for item in value]
    return value


def validator(schema: Schema) -> Draft7Validator:
    """Checks values as the apiserver does; CEL and list types are not looked at."""
    return Draft7Validator(_closed(schema))


def faults(checker: Draft7Validator, value: Any) -> list[str]:
    """What the schema has against the value."""
    found = checker.iter_errors(value)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


def _closed(schema: Schema) -> Schema:
    """int-or-string has no type in a structural schema, but the apiserver checks it."""
    out = dict(schema)
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if "properties" in schema:
        out["properties"] = {name: _closed(prop) for name, prop in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = _closed(schema[key])
    return out


OPEN = st.dictionaries(st.sampled_from(["spec", "limits", "x"]), st.sampled_from([1, "y", {}]))


def values(
    schema: Schema, given: Mapping[str, st.SearchStrategy[Any]] | None = None, path: str = ""
) -> st.SearchStrategy[Any]:
    """Values that the schema lets through; at the dotted paths of ``given`` those drawn from it.

    The elements of a list stand under the path of the list with ``[]`` behind it.
    """
    given = given or {}
    if path in given:
        return given[path]
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from([1, 5, "25%"] if "%" in schema["pattern"] else [8, "8"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "array":
        return _arrays(schema, values(schema["items"], given, f"{path}[]"))
    if schema["type"] == "object":
        return _objects(schema, given, path)
    makers: dict[str, Callable[[Schema], st.SearchStrategy[Any]]] = {
        "boolean": lambda _: st.booleans(),
        "integer": _integers,
        "string": _strings,
    }
    return makers[schema["type"]](schema)


def _integers(schema: Schema) -> st.SearchStrategy[int]:
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum", 0), schema.get("maximum", 10**6)
    return st.integers(-(-low // step), high // step).map(lambda n: n * step)


def _strings(schema: Schema) -> st.SearchStrategy[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", 50)
    if "pattern" not in schema:
        return st.text(min_size=low, max_size=min(high, 20))
    # \Z: Python's $ also matches before a trailing newline, which RE2's does not.
    pattern = schema["pattern"].removesuffix("$") + r"\Z"
    return st.from_regex(pattern, fullmatch=True).filter(lambda s: low <= len(s) <= high)


def _arrays(schema: Schema, items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    unique = (lambda v: v["name"]) if "x-kubernetes-list-map-keys" in schema else repr
    return st.lists(items, min_size=schema.get("minItems", 0), max_size=2, unique_by=unique)


def _objects(
    schema: Schema, given: Mapping[str, st.SearchStrategy[Any]], path: str
) -> st.SearchStrategy[dict[str, Any]]:
    if isinstance(extra := schema.get("additionalProperties"), dict):
        return st.dictionaries(st.sampled_from(["a", "b/c"]), values(extra, given), max_size=2)
    if "properties" not in schema:
        return OPEN
    required = set(schema.get("required", ()))
    parts = {
        name: values(prop, given, f"{path}.{name}" if path else name)
        for name, prop in schema["properties"].items()
    }
    return st.fixed_dictionaries(
        {name: part for name, part in parts.items() if name in required},
        optional={name: part for name, part in parts.items() if name not in required},
    )
