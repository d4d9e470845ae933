"""What is in force: the spec that was accepted, in the form in which it was accepted."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from kvserving_operator.api import meta
from kvserving_operator.plan.model import (
    AuthMaterial,
    Defaults,
    Plan,
    SparePasswords,
    SpareUse,
)
from kvserving_operator.reconcile import acceptance
from kvserving_operator.reconcile.acceptance import (
    Wanted,
    is_genuine,
    last_good,
    plan_of,
    wanted,
)
from kvserving_operator.render import render as plain_render
from kvserving_operator.render.accepted import Record, parse_record
from tests.unit.api.builders import make
from tests.unit.stack import AUTH, DEFAULTS, SPLIT, TIER, one

Object = dict[str, Any]
NEWER = dataclasses.replace(DEFAULTS, agent_image="kvserving/operator:next")
OTHER_AUTH = dataclasses.replace(AUTH, engine_password="another")


def live(**changes: Any) -> Object:
    obj = make({**SPLIT, **TIER}, name="x")
    obj["metadata"] |= {"uid": "uid-1", "generation": 1}
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        target = obj["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return obj


def decide(
    obj: Object,
    record: Record | None,
    *,
    auth: AuthMaterial = AUTH,
    defaults: Defaults = DEFAULTS,
) -> Wanted:
    plan = plan_of(obj, obj["spec"], defaults)
    assert isinstance(plan, Plan)
    return wanted(obj, plan, record, auth, defaults)


def recorded(obj: Object, *, defaults: Defaults = DEFAULTS) -> tuple[Wanted, Record]:
    first = decide(obj, None, defaults=defaults)
    record = parse_record(dict(first.manifests[0]))
    assert record is not None
    return first, record


def agent(children: Wanted, name: str) -> str:
    pod = one(children.manifests, "StatefulSet", name)["spec"]["template"]["spec"]
    return str(next(c["image"] for c in pod["initContainers"] if c["name"] == "agent"))


def test_the_record_comes_first_and_says_what_was_rendered() -> None:
    first, record = recorded(live())
    assert first.manifests[0]["metadata"]["name"] == "x-accepted"
    assert record.spec == live()["spec"]
    assert set(record.parts) == {
        "ConfigMap x-lmcache",
        "ConfigMap x-valkey",
        "StatefulSet x-decode",
        "StatefulSet x-prefill",
        "StatefulSet x-valkey",
    }
    assert first.held == ()


def test_the_record_holds_no_secret() -> None:
    first, _ = recorded(live())
    text = first.manifests[0]["data"]["accepted.json"]
    for secret in (AUTH.agent_token, AUTH.engine_password, AUTH.operator_password):
        assert secret not in text


def test_nothing_changes_while_nothing_changes() -> None:
    first, record = recorded(live())
    assert decide(live(), record) == first


def test_an_upgraded_operator_leaves_engines_and_tier_as_they_are() -> None:
    first, record = recorded(live())
    later = decide(live(), record, defaults=NEWER)
    assert later.manifests == first.manifests
    assert later.held == ("StatefulSet x-decode", "StatefulSet x-prefill")


def test_a_change_of_the_spec_takes_the_new_form_where_it_touches() -> None:
    _, record = recorded(live())
    changed = live(decode__extraArgs=["--max-num-seqs=7"])
    later = decide(changed, record, defaults=NEWER)
    assert agent(later, "x-decode") == NEWER.agent_image
    assert agent(later, "x-prefill") == DEFAULTS.agent_image
    assert later.held == ("StatefulSet x-prefill",)


def test_the_new_form_stays_once_it_was_taken() -> None:
    _, record = recorded(live())
    changed = live(decode__extraArgs=["--max-num-seqs=7"])
    later = decide(changed, record, defaults=NEWER)
    again = parse_record(dict(later.manifests[0]))
    assert decide(changed, again, defaults=NEWER).manifests == later.manifests


def test_scaling_does_not_pull_in_the_new_template() -> None:
    """A replica count is part of the object; whoever scales right after an upgrade restarts it."""
    _, record = recorded(live())
    later = decide(live(decode__replicas=3), record, defaults=NEWER)
    assert agent(later, "x-decode") == DEFAULTS.agent_image
    decode = one(later.manifests, "StatefulSet", "x-decode")
    assert decode["spec"]["replicas"] == 3


def test_the_annotation_lets_the_new_form_in() -> None:
    _, record = recorded(live())
    asked = live()
    asked["metadata"]["annotations"] = {meta.ANNOTATION_ADOPT: "1"}
    later = decide(asked, record, defaults=NEWER)
    assert agent(later, "x-prefill") == agent(later, "x-decode") == NEWER.agent_image
    again = parse_record(dict(later.manifests[0]))
    assert decide(asked, again, defaults=NEWER) == later


def test_other_secrets_reach_their_readers() -> None:
    _, record = recorded(live())
    plain = decide(live(), record, auth=OTHER_AUTH)
    assert plain.held == ()
    assert plain.manifests != decide(live(), record).manifests


def configured(content: str) -> Any:
    """A later operator that writes the LMCache file differently, agent image apart."""

    def render_(plan: Plan, auth: AuthMaterial, owner: Any) -> tuple[Any, ...]:
        manifests = copy.deepcopy(plain_render(plan, auth, owner))
        for manifest in manifests:
            if manifest["metadata"]["name"] == "x-lmcache":
                manifest["data"] = {"lmcache.yaml": content}
            if (manifest["kind"], manifest["metadata"]["name"]) == ("StatefulSet", "x-prefill"):
                template = manifest["spec"]["template"]["metadata"]
                template["annotations"][meta.ANNOTATION_CONFIG_HASH] = content
        return manifests

    return render_


def test_a_configuration_is_never_held_apart_from_its_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else pods carry the hash of a file that they do not have, and miss its change later."""
    _, record = recorded(live())
    monkeypatch.setattr(acceptance, "render", configured("newer"))
    both = ("ConfigMap x-lmcache", "StatefulSet x-prefill")
    assert decide(live(), record).held == both
    assert decide(live(decode__extraArgs=["--max-num-seqs=7"]), record).held == both
    later = decide(live(prefill__extraArgs=["--max-num-seqs=7"]), record)
    assert one(later.manifests, "ConfigMap", "x-lmcache")["data"] == {"lmcache.yaml": "newer"}
    prefill = one(later.manifests, "StatefulSet", "x-prefill")["spec"]["template"]["metadata"]
    assert prefill["annotations"][meta.ANNOTATION_CONFIG_HASH] == "newer"
    assert later.held == ()


def test_a_record_that_somebody_edited_is_not_obeyed() -> None:
    first, record = recorded(live())
    parts = copy.deepcopy(dict(record.parts))
    pod: Any = parts["StatefulSet x-decode"]["spec"]
    pod["containers"][0]["command"] = ["sh", "-c", "evil"]
    edited = dataclasses.replace(record, parts=parts)
    assert decide(live(), edited) == first
    spec = dataclasses.replace(record, spec={**record.spec, "suspend": False})
    assert not is_genuine(spec, AUTH)
    assert is_genuine(record, AUTH)
    assert not is_genuine(record, OTHER_AUTH)


def test_a_record_too_large_for_a_config_map_is_cut_or_left_out() -> None:
    """An API server takes 1 MiB; a spec that can be served must not fail by its own record."""
    note = {"metadata": {"annotations": {f"a{i}.example/b": "x" * 250_000 for i in range(3)}}}
    large = live(decode__podTemplate=note)
    first, record = recorded(large)
    assert record.parts == {}
    assert record.spec == large["spec"]
    assert decide(large, record) == first
    note["metadata"]["annotations"]["more/b"] = "x" * 400_000
    names = [m["metadata"]["name"] for m in decide(live(decode__podTemplate=note), None).manifests]
    assert "x-accepted" not in names
    assert "x-decode" in names


def test_a_refused_spec_keeps_up_the_accepted_one() -> None:
    first, record = recorded(live())
    refused = live(engine__extraArgs=["--port", "1"])
    kept = last_good(refused, record, AUTH, DEFAULTS)
    assert kept == first
    assert last_good(refused, record, AUTH, NEWER) is not None


def test_without_a_record_nothing_is_guessed() -> None:
    assert last_good(live(engine__extraArgs=["--port", "1"]), None, AUTH, DEFAULTS) is None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"spec": 1}', '{"spec": {}, "auth": "", "adopt": "", "parts": [1]}'],
)
def test_a_spoilt_record_is_no_record(content: str) -> None:
    first, _ = recorded(live())
    spoilt = copy.deepcopy(dict(first.manifests[0]))
    spoilt["data"] = {"accepted.json": content}
    assert parse_record(spoilt) is None


def with_valkey(image: str) -> Any:
    """A later operator that renders the tier's pods differently."""

    def render_(plan: Plan, auth: AuthMaterial, owner: Any) -> tuple[Any, ...]:
        manifests = copy.deepcopy(plain_render(plan, auth, owner))
        one(manifests, "StatefulSet", "x-valkey")["spec"]["template"]["spec"]["x"] = image
        return manifests

    return render_


def test_a_rotation_reaches_engines_and_no_tier_that_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tier that restarted for it would lose what it holds."""
    first, record = recorded(live())
    monkeypatch.setattr(acceptance, "render", with_valkey("newer"))
    spare = SparePasswords(
        use=SpareUse.PREVIOUS,
        engine_password=AUTH.engine_password,
        operator_password=AUTH.operator_password,
    )
    swapped = dataclasses.replace(
        AUTH, engine_password="new-e", operator_password="new-o", spare=spare
    )
    for use in (SpareUse.PREVIOUS, SpareUse.RETIRED):
        auth = dataclasses.replace(swapped, spare=dataclasses.replace(spare, use=use))
        later = decide(live(), record, auth=auth)
        assert later.held == ("StatefulSet x-valkey",)
        before, after = (
            one(each.manifests, "StatefulSet", "x-valkey")["spec"] for each in (first, later)
        )
        assert before == after
        before, after = (
            one(each.manifests, "StatefulSet", "x-prefill")["spec"] for each in (first, later)
        )
        assert before != after
        again = parse_record(dict(later.manifests[0]))
        assert decide(live(), again, auth=auth) == later
    done = dataclasses.replace(swapped, spare=None)
    settled = decide(live(), again, auth=done)
    assert settled.held == ("StatefulSet x-valkey",)
    assert settled.manifests[1:] != later.manifests[1:]  # the Secret
    assert {
        m["metadata"]["name"]
        for m, n in zip(settled.manifests, later.manifests, strict=True)
        if m != n
    } == {"x-auth"}
