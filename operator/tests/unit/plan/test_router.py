from itertools import takewhile

import pytest

from kvserving_operator.api.v1alpha1 import RouterPolicy
from kvserving_operator.cost import Routing
from kvserving_operator.plan.model import RouterPlan
from kvserving_operator.plan.router import ROUTINGS
from tests.unit.stack import SPLIT, option, planned, refused


def router(changes: dict) -> RouterPlan:
    found = planned(changes).router
    assert found is not None
    return found


def selector(words: tuple[str, ...], flag: str) -> list[str]:
    after = words[words.index(flag) + 1 :]
    return list(takewhile(lambda word: not word.startswith("--"), after))


def labels(role: str) -> list[str]:
    return [
        "kvserving.io/kvserving=x",
        f"kvserving.io/role={role}",
        "kvserving.io/leader=true",
    ]


def test_a_split_stack_is_routed_as_prefill_and_decode():
    words = router(SPLIT).arguments
    assert "--vllm-pd-disaggregation" in words
    assert option(words, "--kv-connector") == "nixl"
    assert selector(words, "--prefill-selector") == labels("prefill")
    assert selector(words, "--decode-selector") == labels("decode")
    assert "--selector" not in words


def test_a_whole_stack_is_routed_to_decode():
    words = router({}).arguments
    assert "--vllm-pd-disaggregation" not in words
    assert selector(words, "--selector") == labels("decode")


def test_engines_are_found_in_the_own_namespace_on_the_engine_s_port():
    words = router({}).arguments
    assert option(words, "--service-discovery-namespace") == "default"
    assert option(words, "--service-discovery-port") == "8000"
    assert option(words, "--host") == "0.0.0.0"  # noqa: S104
    assert option(words, "--port") == "8080"
    assert option(words, "--prometheus-host") == "0.0.0.0"  # noqa: S104
    assert option(words, "--prometheus-port") == "29000"


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ("Random", "random"),
        ("RoundRobin", "round_robin"),
        ("CacheAware", "cache_aware"),
        ("PowerOfTwo", "power_of_two"),
        ("ConsistentHash", "consistent_hash"),
        ("StickyLeastLoaded", "sticky_least_loaded"),
    ],
)
def test_policies_are_written_in_the_router_s_words(policy: str, word: str):
    words = router({**SPLIT, "router.policy": policy, "router.decodePolicy": policy}).arguments
    assert option(words, "--policy") == word
    assert option(words, "--decode-policy") == word
    assert option(words, "--prefill-policy") is None


def test_policies_of_roles_need_roles():
    words = router({"router.prefillPolicy": "Random", "router.decodePolicy": "Random"}).arguments
    assert "--prefill-policy" not in words
    assert "--decode-policy" not in words


def test_timeouts_follow_the_roles():
    changes = {
        "prefill": {"startupTimeout": "1h"},
        "decode": {"parallelism": {}, "startupTimeout": "10m", "drain": {"timeout": "2h"}},
    }
    found = router(changes)
    assert option(found.arguments, "--worker-startup-timeout-secs") == "3600"
    assert option(found.arguments, "--request-timeout-secs") == "7200"
    assert found.startup_seconds == 3600
    assert option(router({}).arguments, "--request-timeout-secs") == "1800"


def test_image_and_resources_have_defaults():
    assert router({}).image == "kvserving/router:1"
    assert router({"router.image": "mine:1"}).image == "mine:1"
    assert router({}).resources["limits"] == {"memory": "1Gi"}
    assert router({"router.resources": {"limits": {"cpu": "1"}}}).resources == {
        "limits": {"cpu": "1"}
    }


def test_no_router_is_made_when_somebody_else_routes():
    assert planned({"router.type": "None"}).router is None


@pytest.mark.parametrize(
    "argument",
    [
        "--port=1",
        "--prometheus-host",
        "--prefill-sel",
        "--service_discovery",
        "--policy",
        "--kv-co",
    ],
)
def test_the_router_s_owned_flags_are_refused(argument: str):
    assert "spec.router.extraArgs[0]" in refused({"router.extraArgs": [argument]})


def test_other_router_flags_come_last():
    words = router({"router.extraArgs": ["--cache-threshold", "0.5"]}).arguments
    assert words[-2:] == ("--cache-threshold", "0.5")


def test_smg_is_told_the_engine_and_the_roles():
    found = router({**SPLIT, "router.type": "SMG"})
    assert found.command == ("smg", "launch")
    words = found.arguments
    assert words[:3] == ("--pd-disaggregation", "--backend", "vllm")
    assert selector(words, "--prefill-selector") == labels("prefill")
    assert selector(words, "--decode-selector") == labels("decode")
    whole = router({"router.type": "SMG", "engine.type": "SGLang"}).arguments
    assert whole[:2] == ("--backend", "sglang")
    assert selector(whole, "--selector") == labels("decode")


def test_smg_has_other_words_and_other_policies():
    words = router({"router": {"type": "SMG", "policy": "ConsistentHash"}}).arguments
    assert option(words, "--policy") == "consistent_hashing"
    changes = {**SPLIT, "router": {"type": "SMG", "decodePolicy": "StickyLeastLoaded"}}
    fault = refused(changes)["spec.router.decodePolicy"]
    assert "ConsistentHash" in fault.remedy


@pytest.mark.parametrize("argument", ["--enable-igw", "--backend=vllm", "--health-check-port"])
def test_smg_s_own_flags_are_owned(argument: str):
    changes = {"router": {"type": "SMG", "extraArgs": [argument]}}
    assert "spec.router.extraArgs[0]" in refused(changes)


def test_a_route_is_wanted_when_it_has_parents():
    gateway = {"parentRefs": [{"name": "edge"}], "hostnames": ["a.example"]}
    route = router({"router.gateway": gateway}).route
    assert route is not None
    assert (route.parents, route.hostnames) == (({"name": "edge"},), ("a.example",))
    assert router({}).route is None


@pytest.mark.parametrize(
    ("changes", "routing"),
    [
        ({}, Routing.FREEST),
        ({"router.policy": "RoundRobin"}, Routing.TURN),
        ({"router.policy": "ConsistentHash"}, Routing.CHANCE),
        ({"router.policy": "Random", "router.prefillPolicy": "PowerOfTwo"}, Routing.FREER_OF_TWO),
        ({"router.type": "None"}, Routing.CHANCE),
    ],
)
def test_waits_are_those_of_the_policy_that_picks_who_computes(changes: dict, routing: Routing):
    plan = planned({**SPLIT, **changes, "prefill.replicas": 3})
    assert (plan.pool.replicas, plan.pool.routing) == (3, routing)


def test_without_prefill_the_engines_that_decode_are_the_pool():
    assert planned({"decode.replicas": 5}).pool.replicas == 5


def test_every_policy_is_known_to_the_cost_model():
    assert set(ROUTINGS) == set(RouterPolicy)
