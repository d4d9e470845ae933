"""Endless nesting is refused before anything walks down into it."""

from typing import Any

import pytest

from kvserving_operator import plan
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Plan, Refusal
from kvserving_operator.plan.nesting import MAX_DEPTH
from tests.unit.api.builders import make
from tests.unit.stack import DEFAULTS


def parsed(field: str, value: Any) -> KVServing:
    """Without copying the value, which Python does by recursion."""
    made = make({field: {}})
    *parents, last = field.split(".")
    target = made["spec"]
    for parent in parents:
        target = target[parent]
    target[last] = value
    return KVServing.parse(made)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"x": value}
    return value


FIELDS = {
    "engine.podTemplate": "spec.engine.podTemplate",
    "engine.cacheVolume": "spec.engine.cacheVolume",
    "decode.podTemplate": "spec.decode.podTemplate",
    "decode.resources": "spec.decode.resources",
    "kvCache.remote.podTemplate": "spec.kvCache.remote.podTemplate",
    "router.podTemplate": "spec.router.podTemplate",
    "transfer.nixl.extraConfig": "spec.transfer.nixl.extraConfig",
    "model.cache.csi": "spec.model.cache.csi",
}


@pytest.mark.parametrize("field", FIELDS)
def test_it_is_refused_wherever_it_is(field: str) -> None:
    built = plan.build(parsed(field, nested(2_000)), DEFAULTS)
    assert isinstance(built, Refusal)
    assert [(f.field, f.remedy) for f in built.faults] == [
        (FIELDS[field], "write it as Kubernetes has it")
    ]


def test_lists_count_too() -> None:
    peers: Any = []
    for _ in range(MAX_DEPTH):
        peers = [peers]
    changes = {"networkPolicy.clients": [{"x": peers}], "engine.env": [{"name": "A"}]}
    built = plan.build(KVServing.parse(make(changes)), DEFAULTS)
    assert isinstance(built, Refusal)
    assert [fault.field for fault in built.faults] == ["spec.networkPolicy.clients"]


def test_what_is_real_passes() -> None:
    built = plan.build(parsed("transfer.nixl.extraConfig", nested(40)), DEFAULTS)
    assert isinstance(built, Plan)
