"""Objects for the tests of the API: the smallest legal one, changed at dotted paths."""

from copy import deepcopy
from typing import Any

Object = dict[str, Any]

ABSENT: Any = object()


def make(changes: dict[str, Any] | None = None, *, name: str = "x") -> Object:
    """The smallest legal object with ``spec.PATH = value`` for each change; ABSENT removes."""
    made: Object = {
        "apiVersion": "kvserving.io/v1alpha1",
        "kind": "KVServing",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": "org/model"},
            "engine": {"image": "engine:1"},
            "decode": {"parallelism": {}},
        },
    }
    for path, value in (changes or {}).items():
        put(made["spec"], path, value)
    return made


def put(target: Object, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        target = target.setdefault(part, {})
    if value is ABSENT:
        target.pop(last, None)
    else:
        target[last] = deepcopy(value)
