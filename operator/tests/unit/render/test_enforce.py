"""The second lock: a template that got past the rules still changes nothing of the operator's."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from kvserving_operator.engines.base import Role
from kvserving_operator.render import pod
from kvserving_operator.render.enforce import enforce
from kvserving_operator.render.engine_pod import engine_template
from tests.unit.stack import SPLIT, TIER, container, planned

PLAN = planned({**SPLIT, **TIER, "prefill": {"rdma": {"resources": {"rdma/ib": "1"}}}})
ROLE = PLAN.role(Role.PREFILL)
assert ROLE is not None
BASE = engine_template(PLAN, ROLE, "hash")

OWNED_KEYS = ("image", "args", "ports", "startupProbe", "livenessProbe", "readinessProbe")
ANY = st.none() | st.text(max_size=3) | st.integers(0, 9) | st.lists(st.text(max_size=3))
HOSTILE = st.fixed_dictionaries(
    {},
    optional={
        "terminationGracePeriodSeconds": st.integers(0, 5),
        "shareProcessNamespace": st.booleans(),
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["engine", "other"])},
                optional=dict.fromkeys(OWNED_KEYS, ANY)
                | {
                    "env": st.just([{"name": "PYTHONHASHSEED", "value": "7"}]),
                    "volumeMounts": st.just([{"name": "other", "mountPath": "/dev/shm"}]),
                    "securityContext": st.just({"capabilities": {"add": [], "drop": []}}),
                },
            ),
            max_size=2,
        ),
        "initContainers": st.just([{"name": "agent", "image": "evil", "args": ["sleep"]}]),
        "volumes": st.just([{"name": "auth", "secret": {"secretName": "other"}}]),
    },
)


@settings(max_examples=20)
@given(HOSTILE)
def test_what_is_the_operator_s_survives_any_template(spec: dict):
    assert ROLE is not None
    merged = pod.with_user_templates(copy.deepcopy(BASE), [{"spec": spec}])
    result = enforce(merged, BASE, ROLE)["spec"]
    now, before = (container(s, "engine") for s in (result, BASE["spec"]))
    for key in OWNED_KEYS:
        assert now[key] == before[key]
    assert [m for m in now["volumeMounts"] if m in before["volumeMounts"]] == before["volumeMounts"]
    assert len({m["mountPath"] for m in now["volumeMounts"]}) == len(now["volumeMounts"])
    seeds = [{v["name"]: v for v in c["env"]}["PYTHONHASHSEED"]["value"] for c in (now, before)]
    assert seeds[0] == seeds[1] != "7"
    assert "IPC_LOCK" in now["securityContext"]["capabilities"]["add"]
    assert container(result, "agent") == container(BASE["spec"], "agent")
    assert [v for v in result["volumes"] if v["name"] == "auth"] == [
        v for v in BASE["spec"]["volumes"] if v["name"] == "auth"
    ]
    assert result["terminationGracePeriodSeconds"] == ROLE.grace_seconds
    assert result["shareProcessNamespace"] is True


def test_labels_of_selectors_are_put_back():
    assert ROLE is not None
    patch = {"metadata": {"labels": {"kvserving.io/role": "decode", "team": "a"}}}
    merged = pod.with_user_templates(copy.deepcopy(BASE), [patch])
    labels = enforce(merged, BASE, ROLE)["metadata"]["labels"]
    assert labels["kvserving.io/role"] == "prefill"
    assert labels["team"] == "a"


def test_a_spec_without_templates_is_left_as_it_is():
    assert ROLE is not None
    assert enforce(BASE, BASE, ROLE) == BASE
