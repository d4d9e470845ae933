"""Does a live object already say what was rendered?

The API server rewrites what it is given (`0.2` becomes `200m`, empty maps vanish, defaults appear),
and ConfigMap, Secret, Service and Role have no generation that would betray a hand edit. So an
object is left alone exactly when the rendered one is contained in the live one after normalising.
The render-hash annotation is part of the rendered object: a field that is no longer rendered
changes the hash, and so is removed by the next apply.

Extra fields, labels, containers or variables that others added are not ours and are no difference:
server-side apply would not remove them, and treating them as drift would mean a write every pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvserving_operator.api import quantity
from kvserving_operator.plan.model import Manifest

_IDENTITY = ("apiVersion", "kind")
_SERVER_OWNED = frozenset({"status", "managedFields", "resourceVersion", "creationTimestamp"})

# Lists that the API merges by key (their merge keys in core/v1, apps/v1 and meta/v1). The value
# gives, per key field, the default that the server fills in.
_KEYED: Mapping[str, Mapping[str, Any]] = {
    "containers": {"name": None},
    "initContainers": {"name": None},
    "env": {"name": None},
    "volumes": {"name": None},
    "volumeMounts": {"mountPath": None},
    "volumeDevices": {"devicePath": None},
    "imagePullSecrets": {"name": None},
    "hostAliases": {"ip": None},
    "topologySpreadConstraints": {"topologyKey": None, "whenUnsatisfiable": None},
    "ownerReferences": {"uid": None},
}
_CONTAINER_PORTS = {"containerPort": None, "protocol": "TCP"}
_SERVICE_PORTS = {"port": None, "protocol": "TCP"}
_SETS = frozenset({"finalizers"})
# Booleans that the server stores as absent when they are false; others keep their false, and losing
# one (automountServiceAccountToken, allowPrivilegeEscalation) is a difference that matters.
_FALSE_IS_ABSENT = frozenset(
    {
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "publishNotReadyAddresses",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
    }
)
_QUANTITY_MAPS = frozenset({"requests", "limits", "capacity", "hard"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "divisor", "storage"})

Path = tuple[str, ...]


def differences(rendered: Manifest, live: Manifest) -> Iterator[str]:
    """Paths of rendered fields that the live object does not hold, e.g. `spec.replicas`.

    Names of fields only, never values: they may be logged, also for a Secret.
    """
    for field in rendered:
        if field not in _SERVER_OWNED and field not in _IDENTITY:
            yield from _differ(rendered[field], live.get(field), (field,))


def needs_apply(rendered: Manifest, live: Manifest) -> bool:
    """True when at least one rendered field is missing from the live object or differs."""
    return next(differences(rendered, live), None) is not None


def _differ(rendered: Any, live: Any, path: Path) -> Iterator[str]:
    if (_empty(rendered) and _empty(live)) or (live is None and _stored_as_absent(rendered, path)):
        return
    if isinstance(rendered, Mapping) and isinstance(live, Mapping):
        for field, value in rendered.items():
            yield from _differ(value, live.get(field), (*path, str(field)))
    elif isinstance(rendered, list | tuple) and isinstance(live, list):
        yield from _lists_differ(rendered, live, path)
    elif not _scalars_equal(rendered, live, path):
        yield ".".join(path)


def _empty(value: Any) -> bool:
    # The server drops empty maps and lists of optional fields, and stores null as absent.
    return value is None or (isinstance(value, dict | list | tuple) and not value)


def _stored_as_absent(value: Any, path: Path) -> bool:
    if value is False:
        return path[-1] in _FALSE_IS_ABSENT
    return value == "" or (value == 0 and isinstance(value, int))


def _lists_differ(rendered: Sequence[Any], live: list[Any], path: Path) -> Iterator[str]:
    keys = _merge_keys(path)
    if keys is not None and all(isinstance(item, Mapping) for item in (*rendered, *live)):
        found = {_key(item, keys): item for item in live}
        for item in rendered:
            key = _key(item, keys)
            label = f"{path[-1]}[{'/'.join(str(part) for part in key)}]"
            yield from _differ(item, found.get(key), (*path[:-1], label))
    elif path[-1] in _SETS:
        if not set(rendered) <= set(live):
            yield ".".join(path)
    elif len(rendered) != len(live):
        yield ".".join(path)
    else:
        for index, (ours, theirs) in enumerate(zip(rendered, live, strict=True)):
            yield from _differ(ours, theirs, (*path[:-1], f"{path[-1]}[{index}]"))


def _merge_keys(path: Path) -> Mapping[str, Any] | None:
    field = path[-1]
    if field == "ports":
        # Ports of a container and of a Service are merged by key, those of a NetworkPolicy rule
        # are one atomic list.
        parent = path[-2] if len(path) > 1 else ""
        if parent.startswith(("containers[", "initContainers[")):
            return _CONTAINER_PORTS
        return _SERVICE_PORTS if path == ("spec", "ports") else None
    return _KEYED.get(field)


def _key(item: Mapping[str, Any], keys: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(item.get(field, default) for field, default in keys.items())


def _scalars_equal(rendered: Any, live: Any, path: Path) -> bool:
    if rendered is None or live is None:
        return rendered is live
    if isinstance(rendered, bool) or isinstance(live, bool):
        return rendered is live
    if type(rendered) is type(live) and rendered == live:
        return True
    if not _is_quantity(path):
        return bool(rendered == live) and isinstance(rendered, int | float) is isinstance(
            live, int | float
        )
    try:
        return quantity.parse(_text(rendered)) == quantity.parse(_text(live))
    except (quantity.QuantityError, TypeError):
        return False


def _is_quantity(path: Path) -> bool:
    return path[-1] in _QUANTITY_FIELDS or (len(path) > 1 and path[-2] in _QUANTITY_MAPS)


def _text(value: Any) -> str | int:
    return value if isinstance(value, int) else str(value)
