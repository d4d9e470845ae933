import json
from dataclasses import replace

import yaml

from kvserving_operator.api.v1alpha1 import Attention, EngineFeature, LoadingMode
from kvserving_operator.engines import lmcache
from kvserving_operator.engines.base import CacheSettings, TierAccess, TierAuth

REMOTE = TierAccess(
    instances=("x-valkey-0.x-valkey.ns.svc:6379", "x-valkey-1.x-valkey.ns.svc:6379"),
    template="x-valkey-{ordinal}.x-valkey.ns.svc:6379",
    slots=2,
    tls=False,
    authority_secret="",
    auth=TierAuth(secret="x-auth", user="engine", password_key="valkey-engine-password"),
    database=7,
    epoch="00000abc12345678",
)
SETTINGS = CacheSettings(
    chunk_tokens=256,
    local_bytes_per_rank=60 << 30,
    local_bytes_first_rank=60 << 30,
    min_tokens=None,
    remote=REMOTE,
    ranks=8,
    attention=Attention.MLA,
    loading=LoadingMode.AUTO,
    revision="v1",
    digest="",
    features=frozenset(),
)


def test_the_stock_file_has_what_a_shared_tier_needs():
    assert lmcache.cache_file(SETTINGS) == {
        "chunk_size": 256,
        "local_cpu": True,
        "max_local_cpu_size": 60.0,
        "pre_caching_hash_algorithm": "sha256_cbor",
        "remote_serde": "naive",
        "save_unfull_chunk": False,
        "extra_config": {"save_chunk_meta": False},
    }


def test_a_first_rank_that_stores_for_all_gets_the_memory_of_all():
    content = lmcache.cache_file(replace(SETTINGS, local_bytes_first_rank=480 << 30))
    assert content["max_local_cpu_size"] == 60.0
    assert content["extra_config"]["first_rank_max_local_cpu_size"] == 480.0


def test_sizes_are_binary_gigabytes():
    small = replace(SETTINGS, local_bytes_per_rank=64 << 20)
    assert lmcache.cache_file(small)["max_local_cpu_size"] == 0.0625


def test_the_file_survives_yaml():
    content = lmcache.cache_file(SETTINGS)
    assert yaml.safe_load(yaml.safe_dump(content)) == content


def test_features_and_thresholds_are_written_when_they_are_there():
    content = lmcache.cache_file(replace(SETTINGS, features=STORE, min_tokens=2048))
    assert content["enable_async_loading"] is True
    assert content["lookup_server_worker_ids"] == list(range(8))
    assert lmcache.store_config(replace(SETTINGS, min_tokens=2048))["kvserving.min_tokens"] == 2048
    assert "min_retrieve_tokens" not in content
    stock = lmcache.cache_file(replace(SETTINGS, min_tokens=2048))
    assert stock["min_retrieve_tokens"] == 2048


def test_a_store_without_a_remote_tier_is_told_what_it_needs():
    settings = replace(SETTINGS, features=STORE, remote=None)
    assert "remote_url" not in lmcache.cache_file(settings)
    told = json.loads(str(environment(settings)["LMCACHE_EXTRA_CONFIG"]))
    assert told["kvserving.attention"] == "MLA"
    assert "kvserving.tier_epoch" not in told


def test_no_password_and_no_address_stand_in_the_file():
    text = yaml.safe_dump(lmcache.cache_file(SETTINGS))
    assert "password" not in text
    assert "redis" not in text


def test_the_database_is_the_last_part_of_the_address():
    found = {variable.name: variable.value for variable in lmcache.environment(SETTINGS)}
    url = found["LMCACHE_REMOTE_URL"]
    assert url is not None
    assert url.endswith("@x-valkey-0.x-valkey.ns.svc:6379/7")


def test_the_client_does_not_log_its_address():
    found = {variable.name: variable.value for variable in lmcache.environment(SETTINGS)}
    assert found["LMCACHE_LOG_LEVEL"] == "WARNING"
    local = {variable.name for variable in lmcache.environment(replace(SETTINGS, remote=None))}
    assert local == {"LMCACHE_CONFIG_FILE", "LMCACHE_TRACK_USAGE"}


RANKED = frozenset({EngineFeature.RANKED_REMOTE})
STORE = frozenset(set(EngineFeature) - {EngineFeature.GRANIKV})


def environment(settings: CacheSettings) -> dict[str, object]:
    return {
        v.name: v.value if v.value_from is None else v.value_from
        for v in lmcache.environment(settings)
    }


def with_remote(**changes: object) -> CacheSettings:
    return replace(SETTINGS, remote=replace(REMOTE, **changes))


def test_a_client_that_knows_ranks_gets_the_template_and_no_password():
    settings = replace(SETTINGS, features=RANKED)
    content = lmcache.cache_file(settings)
    assert content["remote_url"] == "resp://x-valkey-{ordinal}.x-valkey.ns.svc:6379"
    # In the pod, so that an old engine that restarts does not store under the new epoch.
    assert "extra_config" not in content
    assert json.loads(str(environment(settings)["LMCACHE_EXTRA_CONFIG"])) == {
        "save_chunk_meta": False,
        "kvserving.tier_epoch": "00000abc12345678",
        "kvserving.revision": "v1",
        "kvserving.digest": "",
        "kvserving.instances_per_rank": 2,
        "kvserving.attention": "MLA",
        "kvserving.mode": "Auto",
        "kvserving.min_tokens": 0,
        "kvserving.control_port": 9096,
    }
    found = environment(settings)
    assert "LMCACHE_REMOTE_URL" not in found
    assert found["LMCACHE_RESP_USERNAME"] == "engine"


def test_tls_changes_the_scheme_and_names_the_authority():
    authority = "/etc/kvserving/tier/ca.crt"
    stock = with_remote(tls=True, authority_secret="s")
    url = str(environment(stock)["LMCACHE_REMOTE_URL"])
    assert url.startswith("rediss://")
    assert url.endswith(f"/7?ssl_ca_certs={authority}")
    ranked = replace(stock, features=RANKED)
    assert lmcache.cache_file(ranked)["remote_url"].startswith("valkeys://")
    assert lmcache.store_config(ranked)["kvserving.ca_file"] == authority


def test_epochs_that_share_a_database_share_no_key():
    one, other = ("00000abc00001007", "00000abd00002007")
    seeds = {environment(with_remote(epoch=epoch))["PYTHONHASHSEED"] for epoch in (one, other)}
    assert len(seeds) == 2


def test_without_databases_the_epoch_is_the_seed_of_every_hash():
    found = environment(with_remote(database=None, auth=None))
    assert found["LMCACHE_REMOTE_URL"] == "redis://x-valkey-0.x-valkey.ns.svc:6379"
    assert found["PYTHONHASHSEED"] == str(0xABC)
    assert "LMCACHE_RESP_PASSWORD" not in found
    assert 0 <= int(str(found["PYTHONHASHSEED"])) < 2**32


def test_somebody_else_s_tier_has_user_and_password_in_one_secret():
    auth = TierAuth(secret="cache", user_key="username", password_key="password")
    found = environment(with_remote(auth=auth))
    for name, key in (("USERNAME", "username"), ("PASSWORD", "password")):
        reference = {"secretKeyRef": {"name": "cache", "key": key}}
        assert found[f"LMCACHE_RESP_{name}"] == reference
