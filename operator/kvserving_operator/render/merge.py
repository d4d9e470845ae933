"""Strategic merge of pod templates: the part of Kubernetes' merge that pod templates need. Pure.

Lists with a merge key are merged element by element, in place, new elements at the end; all other
lists are replaced, as the apiserver does. Two differences on purpose: ``tolerations`` add up,
because the two templates of a role both mean theirs, and a volume that is named again is replaced
whole, because two volume sources in one volume are illegal. ``null`` removes a key.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
}
"""Field to the keys that identify an element (``patchMergeKey`` of core/v1)."""
_DEFAULTS: Final = {"protocol": "TCP"}
_ADDED_UP: Final = frozenset({"tolerations"})
_REPLACED: Final = frozenset({"volumes"})
"""Lists whose elements are replaced, not merged, when their keys are equal."""


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """``patch`` over ``base``; neither is changed, and the result shares nothing with them."""
    result = dict(copy.deepcopy(base))
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(key, result.get(key), value)
    return result


def _merged(field: str, old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return merge(old, new)
    if isinstance(new, Mapping):
        return merge({}, new)
    if isinstance(old, list) and _is_list(new):
        if field in _ADDED_UP:
            return old + [copy.deepcopy(item) for item in new if item not in old]
        if keys := _KEYS.get(field):
            return _merge_elements(field, old, new, keys)
    return copy.deepcopy(list(new)) if _is_list(new) else copy.deepcopy(new)


def _merge_elements(
    field: str, old: list[Any], new: Sequence[Any], keys: tuple[str, ...]
) -> list[Any]:
    result = list(old)
    places = {_identity(item, keys): index for index, item in enumerate(result)}
    for item in new:
        identity = _identity(item, keys)
        if identity not in places:
            places[identity] = len(result)
            result.append(merge({}, item))
        elif field in _REPLACED:
            result[places[identity]] = merge({}, item)
        else:
            result[places[identity]] = merge(result[places[identity]], item)
    return result


def _identity(item: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key, _DEFAULTS.get(key)) for key in keys)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
