"""A change of one object, and how its two sides are shown. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from kvserving_operator.plan import Manifest

_SERVER_OWNED: Final = frozenset(
    {"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"}
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An object as it is and as it would be; None where it does not exist."""

    label: str
    live: Manifest | None
    wanted: Manifest | None


def change(live: Manifest | None, wanted: Manifest | None) -> Change | None:
    """The change from one state to the other, or None when a reader would see none."""
    present = live or wanted
    if present is None:
        return None
    one, other = _concealed(live, wanted), _concealed(wanted, live)
    if live is not None and wanted is not None and presentable(live) == presentable(wanted):
        return None
    metadata = present["metadata"]
    label = f"{present['kind']}/{metadata['namespace']}/{metadata['name']}"
    return Change(label=label, live=one, wanted=other)


def presentable(manifest: Manifest) -> Manifest:
    """The object without what the server keeps for itself, and without status."""
    metadata: dict[str, Any] = {
        key: value for key, value in manifest["metadata"].items() if key not in _SERVER_OWNED
    }
    annotations = {
        k: v for k, v in (metadata.get("annotations") or {}).items() if k != _LAST_APPLIED
    }
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    rest = {k: v for k, v in manifest.items() if k not in {"metadata", "status"}}
    head: dict[str, Any] = {k: rest.pop(k) for k in ("apiVersion", "kind") if k in rest}
    return {**head, "metadata": metadata, **rest}


def _concealed(manifest: Manifest | None, other: Manifest | None) -> Manifest | None:
    """A Secret tells which of its keys differ, not what they hold."""
    if manifest is None or manifest["kind"] != "Secret":
        return manifest
    there = (other or {}).get("data") or {}
    data = {
        key: "(not shown)" if there.get(key) == value else f"(not shown, {_side(key, there)})"
        for key, value in (manifest.get("data") or {}).items()
    }
    return {**manifest, "data": data}


def _side(key: str, other: dict[str, str]) -> str:
    return "differs" if key in other else "only here"
