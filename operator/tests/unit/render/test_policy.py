"""Who may open which connection, asked as one would ask a firewall."""

from typing import Any

import pytest

from tests.unit.stack import SPLIT, TIER, one, rendered

BOTH = {**SPLIT, **TIER}
OPERATOR = {
    "namespace": "kvserving-system",
    "labels": {"app.kubernetes.io/name": "kvserving-operator"},
}
STRANGER = {"namespace": "default", "labels": {"app": "stranger"}}


def of_role(role: str, *, name: str = "x", namespace: str = "default") -> dict:
    labels = {"kvserving.io/kvserving": name, "kvserving.io/role": role}
    return {"namespace": namespace, "labels": labels}


def allowed(objects: tuple, target: str, port: int, source: dict) -> bool:
    policy = one(objects, "NetworkPolicy", f"x-{target}")["spec"]
    assert policy["podSelector"] == {
        "matchLabels": {"kvserving.io/kvserving": "x", "kvserving.io/role": target}
    }
    return any(
        any(p["port"] <= port <= p.get("endPort", p["port"]) for p in rule["ports"])
        and ("from" not in rule or any(_is(source, peer) for peer in rule["from"]))
        for rule in policy["ingress"]
    )


def _is(source: dict, peer: dict[str, Any]) -> bool:
    wanted = peer.get("podSelector", {}).get("matchLabels", {})
    namespaces = peer.get("namespaceSelector", {}).get("matchLabels")
    here = (
        source["namespace"] == "default"
        if namespaces is None
        else namespaces.get("kubernetes.io/metadata.name") == source["namespace"]
    )
    return here and wanted.items() <= source["labels"].items()


WAYS = [
    ("valkey", 6379, of_role("prefill"), True),
    ("valkey", 6379, of_role("decode"), False),
    ("valkey", 6379, of_role("router"), False),
    ("valkey", 6379, OPERATOR, True),
    ("prefill", 8000, of_role("router"), True),
    ("decode", 8000, of_role("router"), True),
    ("prefill", 8000, of_role("decode"), False),
    ("prefill", 8000, OPERATOR, False),
    ("prefill", 9095, OPERATOR, True),
    ("decode", 9095, OPERATOR, True),
    ("prefill", 9095, of_role("router"), False),
    ("prefill", 5600, of_role("decode"), True),
    ("prefill", 15600, of_role("decode"), True),
    ("prefill", 15699, of_role("decode"), True),
    ("prefill", 15700, of_role("decode"), False),
    ("decode", 5600, of_role("prefill"), False),
    ("decode", 15600, of_role("prefill"), False),
    ("router", 8080, STRANGER, True),
    ("router", 29000, STRANGER, False),
    ("router", 29000, OPERATOR, True),
    ("router", 8080, OPERATOR, True),
]


@pytest.mark.parametrize(("target", "port", "source", "expected"), WAYS)
def test_ways_of_a_split_stack_with_a_tier(target: str, port: int, source: dict, expected: object):
    assert allowed(rendered(BOTH), target, port, source) is expected


@pytest.mark.parametrize(
    ("target", "port"),
    [("valkey", 6379), ("prefill", 8000), ("prefill", 5600), ("prefill", 9095), ("decode", 8000)],
)
@pytest.mark.parametrize(
    "source",
    [
        STRANGER,
        of_role("prefill", name="y"),
        of_role("router", name="y"),
        of_role("decode", namespace="elsewhere"),
        {"namespace": "default", "labels": OPERATOR["labels"]},
        {"namespace": "kvserving-system", "labels": {"app": "stranger"}},
    ],
)
def test_strangers_reach_nothing(target: str, port: int, source: dict):
    assert not allowed(rendered(BOTH), target, port, source)


def test_without_prefill_decode_reaches_the_tier_and_no_transfer_port_is_open():
    objects = rendered(TIER)
    assert allowed(objects, "valkey", 6379, of_role("decode"))
    assert not allowed(objects, "decode", 5600, of_role("decode"))


def test_each_data_rank_has_its_handshake_port():
    objects = rendered({**SPLIT, "prefill.parallelism": {"data": 4}})
    assert allowed(objects, "prefill", 5603, of_role("decode"))
    assert not allowed(objects, "prefill", 5604, of_role("decode"))


def test_listed_clients_and_scrapers_only():
    peer = {"podSelector": {"matchLabels": {"app": "gateway"}}}
    scraper = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    objects = rendered({**SPLIT, "networkPolicy": {"clients": [peer], "metricsFrom": [scraper]}})
    gateway = {"namespace": "default", "labels": {"app": "gateway"}}
    prometheus = {"namespace": "default", "labels": {"app": "prometheus"}}
    assert allowed(objects, "router", 8080, gateway)
    assert not allowed(objects, "router", 8080, STRANGER)
    assert allowed(objects, "router", 8080, OPERATOR)
    assert allowed(objects, "router", 29000, prometheus)
    assert allowed(objects, "prefill", 9095, prometheus)
    assert not allowed(objects, "prefill", 9095, gateway)
    assert not allowed(objects, "prefill", 8000, prometheus)


def test_without_our_router_the_clients_reach_the_engines():
    peer = {"podSelector": {"matchLabels": {"app": "epp"}}}
    objects = rendered({"router.type": "None", "networkPolicy": {"clients": [peer]}})
    assert allowed(objects, "decode", 8000, {"namespace": "default", "labels": {"app": "epp"}})
    assert not allowed(objects, "decode", 8000, STRANGER)


def test_policies_hold_ingress_only():
    for manifest in rendered(BOTH):
        if manifest["kind"] == "NetworkPolicy":
            assert manifest["spec"]["policyTypes"] == ["Ingress"]
