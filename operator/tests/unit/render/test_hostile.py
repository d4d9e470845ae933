"""Whatever a user writes reaches the process unharmed or is refused; nothing is interpreted."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kvserving_operator import plan
from kvserving_operator.api.v1alpha1 import KVServing
from kvserving_operator.plan import Plan
from kvserving_operator.render import render
from tests.unit.api.builders import make
from tests.unit.render import golden, kubelet
from tests.unit.stack import (
    AUTH,
    DEFAULTS,
    SPLIT,
    TIER,
    container,
    option,
    owner,
    pod_spec,
    rendered,
)

HOSTILE = (
    "a b",
    "'",
    '"',
    "`id`",
    "$(id)",
    "$(HOME)",
    "$$",
    "$$(HOME)",
    "$HOME",
    "; rm -rf /",
    "| cat",
    "&& true",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "- x: y",
    "# comment",
    "key: value",
    "*alias",
    "&anchor",
    "!!python/object",
    "\\",
    "\u00e9\u4e2d\U0001f600",
    "\u2028",
    "\u202e",
    '{"a": "b"}',
    "yes",
    "null",
    "0x1f",
    "1e3",
    "~",
    "%s%n",
    "../..",
)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)


def try_to_build(changes: dict[str, Any]) -> Plan | None:
    """The plan, or None when the spec is refused anywhere."""
    try:
        parsed = KVServing.parse(make(changes))
    except ValidationError:
        return None
    built = plan.build(parsed, DEFAULTS)
    return built if isinstance(built, Plan) else None


@pytest.mark.thorough
@pytest.mark.parametrize("text", HOSTILE)
def test_an_engine_argument_reaches_the_engine_as_it_was_written(text: str):
    spec = pod_spec(rendered({"engine.extraArgs": ["--chat-template", text]}), "x-decode")
    assert kubelet.arguments(container(spec, "engine"))[-1] == text


@pytest.mark.thorough
@pytest.mark.parametrize("text", HOSTILE)
def test_a_router_argument_reaches_the_router_as_it_was_written(text: str):
    objects = rendered({"router.extraArgs": ["--log-dir", text]})
    spec = pod_spec(objects, "x-router", "Deployment")
    assert kubelet.arguments(container(spec, "router"))[-1] == text


@pytest.mark.thorough
@pytest.mark.parametrize("text", HOSTILE)
def test_a_value_of_nixl_reaches_it_inside_json(text: str):
    changes = {**SPLIT, "transfer.nixl": {"extraConfig": {"note": text, text: 1}}}
    spec = pod_spec(rendered(changes), "x-decode")
    config = option(kubelet.arguments(container(spec, "engine")), "--kv-transfer-config")
    assert config is not None
    extra = json.loads(config)["kv_connector_extra_config"]
    assert extra["note"] == text
    assert extra[text] == 1


@pytest.mark.thorough
@settings(max_examples=30, deadline=None)
@given(TEXT)
def test_any_argument_is_refused_or_unharmed(text: str):
    built = try_to_build({"engine.extraArgs": ["--chat-template", text]})
    if built is None:
        return
    spec = pod_spec(render(built, AUTH, owner()), "x-decode")
    assert kubelet.arguments(container(spec, "engine"))[-1] == text


@pytest.mark.thorough
@settings(max_examples=30, deadline=None)
@given(TEXT, st.sampled_from(["model.name", "model.servedNames", "model.revision", "model.volume"]))
def test_any_identity_is_refused_or_unharmed(text: str, field: str):
    value: Any = text
    if field == "model.servedNames":
        value = [text]
    elif field == "model.volume":
        value = {"path": f"/m/{text}", "emptyDir": {}}
    built = try_to_build({field: value})
    if built is None:
        return
    words = kubelet.arguments(
        container(pod_spec(render(built, AUTH, owner()), "x-decode"), "engine")
    )
    assert (f"/m/{text}" if field == "model.volume" else text) in words


@pytest.mark.parametrize("text", ["a\nb", "a\x00b", "a\tb", "a\rb", "\x7f", "\x1b[31m"])
@pytest.mark.parametrize(
    "field", ["engine.extraArgs", "decode.extraArgs", "router.extraArgs", "model.servedNames"]
)
def test_control_characters_are_refused(text: str, field: str):
    assert try_to_build({field: ["--chat-template", text]}) is None


def test_environment_is_kubernetes_own_affair_and_survives_yaml():
    env = [{"name": f"V{index}", "value": text} for index, text in enumerate(HOSTILE)]
    objects = rendered({"engine.env": env})
    assert tuple(yaml.safe_load_all(golden.dump(objects))) == objects
    variables = container(pod_spec(objects, "x-decode"), "engine")["env"]
    assert [variable for variable in variables if variable["name"].startswith("V0")] == env[:1]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["name", "env", "value", "mountPath", "capabilities", "add", "labels", "requests"]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
POD_KEYS = (
    "containers",
    "initContainers",
    "volumes",
    "tolerations",
    "imagePullSecrets",
    "securityContext",
    "hostNetwork",
    "nodeSelector",
    "x",
)
ENGINE_KEYS = {
    "env": st.just([{"name": "A", "value": 1}, {"name": "B"}]) | ANY_JSON,
    "volumeMounts": st.just([{"mountPath": "/x", "name": 1}, {"mountPath": "/y"}]) | ANY_JSON,
    "securityContext": st.fixed_dictionaries({}, optional={"capabilities": ANY_JSON}) | ANY_JSON,
    "command": ANY_JSON,
}
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["engine", "b"])}, optional=ENGINE_KEYS),
    max_size=2,
    unique_by=lambda item: item["name"],
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": ANY_JSON}) | ANY_JSON,
        "spec": ANY_JSON
        | st.dictionaries(st.sampled_from(POD_KEYS), ANY_JSON, max_size=3)
        | st.fixed_dictionaries({"containers": NAMED}, optional={"tolerations": ANY_JSON}),
    },
)
BLOBS = {
    "engine.podTemplate": TEMPLATES,
    "decode.podTemplate": TEMPLATES,
    "router.podTemplate": TEMPLATES,
    "kvCache.remote.podTemplate": TEMPLATES,
    "decode.resources": st.dictionaries(st.sampled_from(["requests", "limits", "x"]), ANY_JSON),
    "kvCache.remote.resources": st.dictionaries(st.sampled_from(["requests", "limits"]), ANY_JSON),
    "router.resources": st.dictionaries(st.sampled_from(["requests", "limits"]), ANY_JSON),
    "transfer.nixl": st.fixed_dictionaries(
        {"extraConfig": st.dictionaries(st.text(max_size=4), ANY_JSON)}
    ),
    "engine.cacheVolume": st.dictionaries(st.text(max_size=4), ANY_JSON, max_size=1),
    "decode.rdma": st.just({"resources": {"rdma/ib": "1"}}),
}


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(BLOBS)).flatmap(lambda key: st.fixed_dictionaries({key: BLOBS[key]})))
def test_no_free_form_value_breaks_the_core(changes: dict):
    """Refused, or rendered as plain JSON: never an exception."""
    built = try_to_build({**TIER, **changes})
    if built is not None:
        json.dumps(render(built, AUTH, owner()))
