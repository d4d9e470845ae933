"""The remote tier: addresses of instances, certificates, disks, and what of it cannot work."""

import pytest

from kvserving_operator.plan.model import TierPlan
from kvserving_operator.plan.tier import filled
from tests.unit.stack import CPU, SPLIT, TIER, planned, refused

EXTERNAL = {**CPU, "model.attention": "MLA", "kvCache.remote.type": "External"}
URL = "kvCache.remote.external.urlTemplate"
FIELD = f"spec.{URL}"


def tier(changes: dict) -> TierPlan:
    found = planned({**TIER, **changes}).tier
    assert found is not None
    return found


def remote(changes: dict) -> dict:
    return {"kvCache.remote": {"type": "Managed", "memoryPerInstance": "10Gi", **changes}}


def waits_for(changes: dict) -> tuple[str, ...]:
    return planned({**EXTERNAL, **changes}).roles[0].wait_for


def test_an_ordinal_is_slot_times_ranks_plus_rank():
    assert filled("{slot}-{rank}-{ordinal}", ordinal=6, ranks=4) == "1-2-6"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("valkeys://cache-{ordinal}.example:6380", "cache-0.example:6380"),
        ("redis://cache.example", "cache.example:6379"),
        ("resp://10.0.0.1:7000", "10.0.0.1:7000"),
    ],
)
def test_an_external_address_has_a_port(url: str, address: str):
    plan = planned({**EXTERNAL, URL: url})
    assert plan.roles[0].wait_for == (address,)
    assert plan.roles[0].wait_with_tls is url.startswith("valkeys")
    assert (plan.tier, plan.external_instances) == (None, 1)
    assert plan.tier_epoch


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache-{index}:6379",
        "redis://cache:70000",
        "redis://cache:0",
        "redis://a:1:2",
        "redis://:6379",
        "redis://{}:6379",
        "redis://-a:1",
    ],
)
def test_an_address_that_is_none_is_refused(url: str):
    assert refused({**EXTERNAL, URL: url})[FIELD].remedy


def test_the_address_of_every_instance_must_be_one():
    store = {"engine.features": ["RankedRemote", "ShardedStore"], URL: "resp://cache:63{ordinal}"}
    assert len(waits_for({**store, "decode.parallelism": {"tensor": 16}})) == 16
    ranks = {"decode.parallelism": {"tensor": 16}, URL: "resp://cache:6379{rank}"}
    assert "HOST:PORT" in refused({**EXTERNAL, **store, **ranks})[FIELD].remedy


def test_a_tier_has_no_more_instances_than_fit_into_a_pod_s_arguments():
    features = {"engine.features": ["RankedRemote", "ShardedStore"]}
    ranks = {**TIER, **features, "decode.parallelism": {"tensor": 64}}
    assert tier({**ranks, "kvCache.remote.instancesPerRank": 64}).instances == 4096
    over = {**ranks, "decode.parallelism": {"tensor": 128}, "kvCache.remote.instancesPerRank": 33}
    fault = refused(over)["spec.kvCache.remote.instancesPerRank"]
    assert "4224" in fault.what
    outside = {**EXTERNAL, **features, URL: "resp://c-{ordinal}:1"}
    outside |= {"decode.parallelism": {"tensor": 128}, "kvCache.remote.instancesPerRank": 64}
    assert "8192" in refused(outside)["spec.kvCache.remote.instancesPerRank"].what


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s"}}}, "tls.mode"),
        ({"kvCache.remote.external.caSecretRef": {"name": "s"}}, "external.caSecretRef"),
        ({"kvCache.remote.memoryPerInstance": "1Gi"}, "memoryPerInstance"),
    ],
)
def test_what_describes_our_valkeys_has_no_meaning_for_others(changes: dict, field: str):
    found = refused({**EXTERNAL, URL: "redis://cache:1", **changes})
    assert found[f"spec.kvCache.remote.{field}"].remedy


def test_a_certificate_covers_every_instance_there_will_ever_be():
    secret = tier(remote({"tls": {"mode": "Secret", "secretRef": {"name": "mine"}}}))
    assert (secret.tls_secret, secret.certificate) == ("mine", None)
    made = tier(remote({"tls": {"mode": "CertManager", "issuerRef": {"name": "ca"}}}))
    assert made.tls_secret == "x-valkey-tls"
    assert made.certificate is not None
    assert "*.x-valkey.default.svc" in made.certificate.hosts
    assert made.certificate.issuer == {
        "name": "ca",
        "kind": "Issuer",
        "group": "cert-manager.io",
    }


def test_an_instance_with_a_disk_is_given_time_to_write():
    assert tier({}).grace_seconds == 30
    kept = tier(remote({"persistence": {"volumeClaim": {"size": "20Gi"}}}))
    assert kept.volume is not None
    assert kept.volume.size == "20Gi"
    assert kept.grace_seconds == 30 + 10 * 1024 // 100


@pytest.mark.parametrize(
    ("size", "claimed"),
    [("20Gi", "20Gi"), ("500G", "500G"), ("1.5Ti", "1.5Ti"), ("1000.5", "1001"), ("0.3k", "0.3k")],
)
def test_a_claim_is_of_whole_bytes_as_the_server_stores_it(size: str, claimed: str):
    kept = tier(remote({"persistence": {"volumeClaim": {"size": size}}}))
    assert kept.volume is not None
    assert kept.volume.size == claimed


def test_both_roles_keep_away_from_an_external_tier_but_one():
    plan = planned(
        {**EXTERNAL, **SPLIT, "prefill.accelerator": {"resourceName": ""}, URL: "redis://c:1"}
    )
    assert [role.wait_for for role in plan.roles] == [("c:1",), ()]
