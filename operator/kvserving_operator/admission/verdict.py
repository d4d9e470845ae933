"""All that the API server would say to one object, at once. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvserving_operator.admission.cel import rule_faults
from kvserving_operator.admission.defaults import defaulted
from kvserving_operator.admission.metadata import head_faults
from kvserving_operator.admission.schema import object_schema, schema_faults
from kvserving_operator.admission.texts import shown
from kvserving_operator.engines.faults import Fault, invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of an object at the door."""

    stored: Mapping[str, Any]
    """The object with defaults, as the server would keep it."""
    faults: tuple[Fault, ...]
    readable: bool
    """Whether the schema has nothing against it, so that the models can read it."""


def admit(obj: Mapping[str, Any]) -> Verdict:
    """The verdict on the creation of ``obj``, which is data of JSON.

    The server stops at the first kind of fault; here rules are asked as well when the schema has
    found some, but not about the fields that it has found.
    """
    schema = object_schema()
    spec = defaulted(schema["properties"]["spec"], obj.get("spec"))
    stored = {**obj, "metadata": _named(obj.get("metadata")), "spec": spec}
    found = list(head_faults(obj))
    if not isinstance(spec, dict):
        what = "is required" if spec is None else f"{shown(spec)} is not an object"
        found.append(invalid("spec", what, "write the fields of the KVServing below it"))
        return Verdict(stored=stored, faults=tuple(found), readable=False)
    by_schema = list(schema_faults(spec))
    found += by_schema
    found += _unheard(rule_faults(schema, stored), [fault.field for fault in found])
    readable = not by_schema and not any(fault.field.startswith("metadata") for fault in found)
    return Verdict(stored=stored, faults=tuple(dict.fromkeys(found)), readable=readable)


def _named(metadata: Any) -> Any:
    """The metadata with a name such as the server makes up where only its beginning is given."""
    if not isinstance(metadata, Mapping) or metadata.get("name") is not None:
        return metadata
    stem = metadata.get("generateName")
    return {**metadata, "name": f"{stem[:58]}xxxxx"} if isinstance(stem, str) else metadata


def _unheard(faults: Iterable[Fault], fields: Sequence[str]) -> Iterator[Fault]:
    """The faults of fields about which, or about a part of which, nothing was said yet."""
    for fault in faults:
        if not any(related(fault.field, field) for field in fields):
            yield fault


def related(one: str, other: str) -> bool:
    """Whether two fields are the same, or one is a part of the other."""
    short, long = sorted((one, other), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")
