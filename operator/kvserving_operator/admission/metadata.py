"""What the API server has against the head of an object: type, name, labels. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvserving_operator.admission.texts import named, shown
from kvserving_operator.api import meta
from kvserving_operator.engines.faults import Fault, invalid

_KNOWN: Final = frozenset(
    {"name", "generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences"}
    | {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
    | {"deletionTimestamp", "deletionGracePeriodSeconds"}
)
_ROOT: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(rf"{_PART}\Z", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"{_PART}(\.{_PART})*\Z", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z", re.ASCII)
_ANNOTATIONS_LIMIT: Final = 256 * 1024


def head_faults(obj: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of everything beside ``spec``."""
    yield from _type_faults(obj)
    for key in sorted(set(obj) - _ROOT, key=str):
        yield invalid(named(str(key)), "unknown field", "remove it")
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        yield invalid("metadata", "is required", "add it, with a name")
        return
    for key in sorted(set(metadata) - _KNOWN, key=str):
        yield invalid(f"metadata.{named(str(key))}", "unknown field", "remove it")
    yield from _name_faults(metadata)
    yield from _map_faults(metadata)


def _type_faults(obj: Mapping[str, Any]) -> Iterator[Fault]:
    for field, wanted in (("apiVersion", meta.API_VERSION), ("kind", meta.KIND)):
        if obj.get(field) != wanted:
            yield invalid(field, f"{shown(obj.get(field))} is not served", f"set it to {wanted}")


def _name_faults(metadata: Mapping[str, Any]) -> Iterator[Fault]:
    field = "name" if metadata.get("name") is not None else "generateName"
    name = metadata.get(field)
    if name is None or name == "":
        yield invalid("metadata.name", "is required", "add it")
    elif not isinstance(name, str):
        yield invalid(f"metadata.{field}", f"{shown(name)} is not a text", "quote it")
    elif field == "name" and (not _SUBDOMAIN.match(name) or len(name) > 253):
        yield invalid(
            "metadata.name",
            f"{shown(name)} is not an RFC 1123 name",
            "choose lower case letters, digits and -, at most 44 of them",
        )
    namespace = metadata.get("namespace")
    if namespace is None:
        return
    if not isinstance(namespace, str) or not _NAMESPACE.match(namespace) or len(namespace) > 63:
        yield invalid(
            "metadata.namespace",
            f"{shown(namespace)} is not the name of a namespace",
            "choose lower case letters, digits and -",
        )


def _map_faults(metadata: Mapping[str, Any]) -> Iterator[Fault]:
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        if entries is None:
            continue
        if not isinstance(entries, Mapping):
            yield invalid(f"metadata.{field}", "is not an object", "write key: value pairs")
            continue
        for key, value in entries.items():
            yield from _entry_faults(field, str(key), value)
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        size = sum(len(str(k).encode()) + len(str(v).encode()) for k, v in annotations.items())
        if size > _ANNOTATIONS_LIMIT:
            yield invalid("metadata.annotations", "is larger than 256 KiB", "remove some")


def _entry_faults(field: str, key: str, value: Any) -> Iterator[Fault]:
    path = f"metadata.{field}"
    domain, slash, word = key.rpartition("/")
    good = _WORD.match(word) and len(word) <= 63
    if not good or (slash and (not _SUBDOMAIN.match(domain.lower()) or len(domain) > 253)):
        yield invalid(path, f"{shown(key)} is not a legal key", "write letters, digits, - _ and .")
    if value is None:
        return  # stored as an empty text
    if not isinstance(value, str):
        yield invalid(f"{path}.{named(key)}", f"{shown(value)} is not a text", "quote it")
    elif field == "labels" and value and (not _WORD.match(value) or len(value) > 63):
        yield invalid(
            f"{path}.{named(key)}",
            f"{shown(value)} is not a legal label value",
            "write at most 63 letters, digits, - _ and .",
        )
