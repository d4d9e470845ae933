"""The rendered LMCache file and environment, read by the store's own settings, key by key."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kvserving_sharded_store.policy import Wanted
from kvserving_sharded_store.settings import Settings

from kvserving_operator.api.v1alpha1 import EngineFeature, LoadingMode
from kvserving_operator.engines import vllm_kv
from tests.unit.render import golden
from tests.unit.stack import container, pod_spec

_STORE = Path(__file__).parents[4] / "engine-patches" / "sharded-store"

RANKED = [
    "external-tier-ranked",
    "glm-pcp8",
    "quickstart-cpu",
    "quickstart-pcp",
    "qwen-tp4-gqa",
    "ranked-tls",
    "two-instances-per-rank",
]
"""Golden cases whose engines carry the store."""


class File:
    """What LMCache makes of its file: LMCacheEngineConfig, as far as the store reads it.

    A variable of the environment takes the place of the whole key of the file.
    """

    blocking_timeout_secs = 10
    lookup_timeout_ms = 3000

    def __init__(self, case: str) -> None:
        objects = golden.objects(case)
        [found] = [
            manifest
            for manifest in objects
            if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"].endswith("-lmcache")
        ]
        content: dict[str, Any] = yaml.safe_load(found["data"]["lmcache.yaml"])
        carrier = golden.planned(golden.load(case)).roles[0]
        engine = container(pod_spec(objects, carrier.name), "engine")
        environment = {entry["name"]: entry.get("value") for entry in engine["env"]}
        self.remote_url = content.get("remote_url")
        self.extra_config: dict[str, Any] = json.loads(str(environment["LMCACHE_EXTRA_CONFIG"]))
        self.asked: set[str] = set()

    def get_extra_config_value(self, name: str, default: Any) -> Any:
        self.asked.add(name)
        return self.extra_config.get(name, default)


def test_the_cases_are_all_that_carry_the_store():
    plans = {case: golden.planned(golden.load(case)) for case in golden.CASES}
    found = [case for case, plan in plans.items() if any(r.launch.store for r in plan.roles)]
    assert found == RANKED


@pytest.mark.parametrize("case", RANKED)
def test_every_key_is_one_that_the_store_reads(case: str):
    file = File(case)
    Settings.of(file)
    written = {name for name in file.extra_config if name.startswith("kvserving.")}
    assert written <= file.asked
    # What is left to the store's own defaults is what no field of the API says, and what its
    # connector asks the engine.
    assert {name.removeprefix("kvserving.") for name in file.asked - written} <= {
        "ca_file",
        "element",
        "exchange_bytes",
        "self_test",
        "threads",
    }


@pytest.mark.parametrize("case", RANKED)
def test_each_rank_finds_its_instances_by_ordinal(case: str):
    plan, file = golden.planned(golden.load(case)), File(case)
    settings = Settings.of(file)
    carrier = plan.roles[0]
    world = carrier.topology.kv_ranks
    assert world == carrier.topology.world_size, "the store numbers its ranks over the engine"
    for rank in range(world):
        found = [str(address) for address in settings.addresses(rank=rank, world=world)]
        assert found == [carrier.wait_for[slot * world + rank] for slot in range(settings.slots)], (
            rank
        )
    tls = {address.tls for address in settings.addresses(rank=0, world=world)}
    assert tls == {carrier.wait_with_tls}
    assert bool(settings.ca_file) is bool(carrier.authority_secret)


@pytest.mark.parametrize("case", RANKED)
def test_what_the_spec_says_is_in_force_from_the_start(case: str):
    kvserving, settings = golden.load(case), Settings.of(File(case))
    loading = kvserving.spec.kv_cache.remote.loading
    assert (settings.mode, settings.min_tokens) == (loading.mode.value, loading.min_tokens or 0)
    assert settings.revision == kvserving.spec.model.revision
    assert settings.digest == kvserving.spec.model.digest
    assert settings.attention == kvserving.spec.model.attention.value
    assert settings.tier_epoch == golden.planned(kvserving).tier_epoch
    assert settings.control_port == 9096
    mla = settings.attention == "MLA"
    assert not settings.mismatches(mla)
    assert settings.mismatches(not mla)


def test_the_modes_are_the_store_s_own():
    assert {mode.value for mode in LoadingMode} == {mode.value for mode in Wanted}


def test_the_connector_is_the_one_that_the_package_registers():
    text = (_STORE / "kvserving_sharded_store" / "plugin.py").read_text()
    assert f'NAME: Final = "{vllm_kv.STORE_CONNECTOR}"' in text
    assert f'"{vllm_kv.STORE_MODULE}"' in text
    source = (_STORE / "kvserving_sharded_store" / "connector.py").read_text()
    assert f"class {vllm_kv.STORE_CONNECTOR}(" in source


def test_the_features_are_what_a_patched_engine_reports():
    text = (_STORE / "kvserving_sharded_store" / "client.py").read_text()
    for feature in set(EngineFeature) - {EngineFeature.GRANIKV}:
        assert f'"{feature.value}"' in text
