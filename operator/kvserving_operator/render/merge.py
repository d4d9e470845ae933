"""Strategic merge of pod templates: the part of Kubernetes' merge that pod templates need. Pure.

Lists with a merge key are merged element by element, in place, new elements at the end; all other
lists are replaced, as the apiserver does. Two differences on purpose: ``tolerations`` add up,
because the two templates of a role both mean theirs, and a volume that is named again is replaced
whole, because two volume sources in one volume are illegal. ``null`` removes a key.
"""

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
    """``patch`` over ``base``; neither is changed. Parts that stay are shared, not copied."""
    result = dict(base)
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
    if not _is_list(new):
        return new
    before = list(old) if _is_list(old) else []
    if field in _ADDED_UP:
        return before + [item for item in new if item not in before]
    keys = _KEYS.get(field)
    return list(new) if keys is None else _merge_elements(field, before, new, keys)


def _merge_elements(
    field: str, old: list[Any], new: Sequence[Any], keys: tuple[str, ...]
) -> list[Any]:
    result = list(old)
    places = {_identity(item, keys): index for index, item in enumerate(result)}
    for item in new:
        place = places.get(_identity(item, keys))
        if place is None:
            places[_identity(item, keys)] = len(result)
            result.append(_merged("", None, item))
        else:
            old_item = {} if field in _REPLACED else result[place]
            result[place] = _merged("", old_item, item)
    return result


def _identity(item: Any, keys: tuple[str, ...]) -> str:
    """What tells an element from its neighbours; an element without the keys is its own."""
    if not isinstance(item, Mapping):
        return repr(item)
    return repr([item.get(key, _DEFAULTS.get(key)) for key in keys])


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
