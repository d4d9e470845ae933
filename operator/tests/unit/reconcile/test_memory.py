"""What is remembered of an object is what would be made anew, and holds no secret."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Key, resource_of
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import AuthMaterial, Plan, Refusal
from kvserving_operator.reconcile import memory as subject
from kvserving_operator.reconcile.acceptance import Wanted, trusted_record, wanted
from kvserving_operator.reconcile.memory import Memory
from kvserving_operator.reconcile.planning import planned_of
from tests.unit.api.builders import make
from tests.unit.stack import AUTH, DEFAULTS, SPLIT, TIER

from .recorder import Object


def live(changes: Any = None, uid: str = "uid-1", **metadata: Any) -> Object:
    made: Object = make({**SPLIT, **TIER, **(changes or {})}, name="x")
    made["metadata"] |= {"namespace": "default", "uid": uid, "resourceVersion": "1"} | metadata
    return made


def observed(*children: Object) -> Observed:
    found: dict[paths.Resource, tuple[Object, ...]] = dict.fromkeys(paths.CHILDREN, ())
    for child in children:
        found[resource_of(child)] += (child,)
    return Observed(key=Key("default", "x"), uid="uid-1", children=found)


def fresh(obj: Object, seen: Observed, auth: AuthMaterial = AUTH) -> Wanted:
    plan = planned_of(obj, DEFAULTS)
    assert isinstance(plan, Plan)
    return wanted(obj, plan, trusted_record(seen, "x", auth), auth, DEFAULTS)


def remembered(memory: Memory, obj: Object, seen: Observed, auth: AuthMaterial = AUTH) -> Wanted:
    plan = memory.planned(obj)
    assert isinstance(plan, Plan)
    return memory.wanted(obj, plan, seen, auth)


def settled(obj: Object) -> Observed:
    """With the children that an earlier pass has written."""
    return observed(*copy.deepcopy(fresh(obj, observed()).manifests))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every planning and rendering that really happens."""
    done: list[str] = []

    def plan(*arguments: Any) -> Any:
        done.append("plan")
        return planned_of(*arguments)

    def render(*arguments: Any) -> Any:
        done.append("render")
        return wanted(*arguments)

    monkeypatch.setattr(subject, "planned_of", plan)
    monkeypatch.setattr(subject, "wanted", render)
    return done


FOREIGN: Object = {
    "resourceVersion": "9",
    "generation": 2,
    "managedFields": [{"manager": "m"}],
    "labels": {"team": "a"},
    "annotations": {"example.com/note": "n"},
    "finalizers": ["example.com/f"],
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
"""What others do to an object: no input of a plan or a child."""


@pytest.mark.parametrize(
    "foreign",
    [
        {"status": {"conditions": [{"type": "Odd"}]}},
        {"status": {"tier": {"instances": "three"}}},
        {"status": None},
        {"metadata": live()["metadata"] | {"annotations": None, "labels": None, "generation": "x"}},
        {"apiVersion": "kvserving.io/v1alpha1", "kind": "KVServing", "more": 1},
    ],
)
def test_what_another_version_wrote_beside_the_spec_is_no_reason_to_refuse_it(
    foreign: Object,
) -> None:
    memory = Memory(DEFAULTS)
    assert memory.planned(live() | foreign) == planned_of(live(), DEFAULTS)
    assert isinstance(memory.planned(live()), Plan)


def test_equal_inputs_are_planned_and_rendered_once(counted: list[str]) -> None:
    memory, seen = Memory(DEFAULTS), settled(live())
    first = remembered(memory, live(), seen)
    later = live(**FOREIGN)
    again = remembered(memory, later, settled(live()))
    assert counted == ["plan", "render"]
    assert first == again == fresh(live(), seen) == fresh(later, seen)
    same = [one is other for one, other in zip(first.manifests, again.manifests, strict=True)]
    kinds = [manifest["kind"] for manifest in first.manifests]
    assert same == [kind != "Secret" for kind in kinds], "the same objects, but for the Secret"


CHANGES = {
    "spec": (live({"kvCache.chunkTokens": 512}), settled(live()), AUTH),
    "annotation": (live(annotations={"kvserving.io/adopt": "1"}), settled(live()), AUTH),
    "password": (live(), settled(live()), replace(AUTH, engine_password="another-0123456789")),
    "record is gone": (live(), observed(), AUTH),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_input_is_never_answered_from_memory(what: str) -> None:
    memory = Memory(DEFAULTS)
    remembered(memory, live(), settled(live()))
    obj, seen, auth = CHANGES[what]
    assert remembered(memory, obj, seen, auth) == fresh(obj, seen, auth)
    assert remembered(memory, live(), settled(live())) == fresh(live(), settled(live()))


def test_a_forged_record_is_not_mistaken_for_the_one_before() -> None:
    memory, seen = Memory(DEFAULTS), settled(live())
    remembered(memory, live(), seen)
    forged = copy.deepcopy(list(seen.ours()))
    record = next(c for c in forged if c["metadata"]["name"] == "x-accepted")
    record["data"] = {
        field: text.replace("x-valkey", "elsewhere") for field, text in record["data"].items()
    }
    tampered = observed(*forged)
    assert remembered(memory, live(), tampered) == fresh(live(), tampered)


def test_refusals_are_remembered_too(counted: list[str]) -> None:
    memory = Memory(DEFAULTS)
    refused = live({"prefill.extraArgs": ["--port=1"]})
    assert isinstance(memory.planned(refused), Refusal)
    assert memory.planned(refused) is memory.planned(copy.deepcopy(refused))
    assert counted == ["plan"]


def test_no_secret_is_kept() -> None:
    memory, seen = Memory(DEFAULTS), settled(live())
    remembered(memory, live(), seen)
    remembered(memory, live(), seen)
    text = repr(memory._kept)
    assert "x-router" in text
    for manifest in fresh(live(), seen).manifests:
        if manifest["kind"] == "Secret":
            for value in (manifest.get("data") or manifest.get("stringData")).values():
                assert value not in text
    for secret in (AUTH.agent_token, AUTH.engine_password, AUTH.operator_password):
        assert secret not in text


def test_the_oldest_are_forgotten(counted: list[str]) -> None:
    memory = Memory(DEFAULTS, limit=2)
    for uid in ("a", "b", "a", "c", "a", "b"):
        memory.planned(live(uid=uid))
    assert counted == ["plan"] * 4, "a, b, c, and b again"
