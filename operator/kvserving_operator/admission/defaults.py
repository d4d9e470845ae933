"""Defaults and nulls as the API server treats them before it validates an object. Pure."""

from copy import deepcopy
from typing import Any

from kvserving_operator.api.schema import Schema


def defaulted(schema: Schema, value: Any) -> Any:
    """``value`` with the schema's defaults, level by level; a null counts as absent.

    No field of this API is nullable. Parts that are handed on as they are keep their nulls: the
    schema does not describe them.
    """
    if isinstance(value, dict):
        return _object(schema, value)
    if isinstance(value, list) and "items" in schema:
        return [defaulted(schema["items"], item) for item in value]
    return value


def _object(schema: Schema, value: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    described = others if isinstance(others, dict) else None
    out: dict[str, Any] = {}
    for name, item in value.items():
        inner = properties.get(name, described)
        if inner is None:
            out[name] = item
        elif item is not None:
            out[name] = defaulted(inner, item)
    for name, inner in properties.items():
        if name not in out and "default" in inner:
            out[name] = defaulted(inner, deepcopy(inner["default"]))
    return out
