import pytest

from kvserving_operator.engines.base import Role
from kvserving_operator.plan import tier as tier_module
from tests.unit.stack import CPU, CPU_SPLIT, SPLIT, TIER, planned, refused

GIB = 1 << 30


def epoch(changes: dict) -> str:
    tier = planned(changes).tier
    assert tier is not None
    return tier.epoch


def local_share(changes: dict, role: Role = Role.DECODE) -> float | None:
    found = planned(changes).role(role)
    assert found is not None
    content = found.launch.cache_file
    return None if content is None else content["max_local_cpu_size"]


def test_no_cache_is_asked_for_by_default():
    plan = planned()
    assert plan.tier is None
    assert local_share({}) is None


def test_each_rank_gets_its_part_of_the_replica_s_budget():
    changes = {
        **CPU_SPLIT,
        "model.attention": "MLA",
        "kvCache.local": {"sizePerReplica": "480Gi"},
        "prefill.parallelism": {"prefillContext": 8},
    }
    assert local_share(changes, Role.PREFILL) == 60.0
    assert local_share(changes, Role.DECODE) is None


def test_the_rank_that_stores_for_all_gets_the_memory_of_all():
    changes = {
        "model.attention": "MLA",
        "kvCache.local": {"sizePerReplica": "64Gi"},
        "decode.parallelism": {"tensor": 4, "data": 2},
    }
    found = planned(changes).role(Role.DECODE)
    assert found is not None
    assert found.launch.cache_file is not None
    extra = found.launch.cache_file["extra_config"]
    assert extra["first_rank_max_local_cpu_size"] == 32.0, "of each data rank"


def test_data_parallel_workers_share_the_budget_too():
    changes = {
        "model.attention": "MLA",
        "kvCache.local": {"sizePerReplica": "64Gi"},
        "decode.parallelism": {"tensor": 2, "data": 4},
    }
    assert local_share(changes) == 8.0


def test_a_remote_tier_alone_stages_five_gigabytes_a_rank():
    assert local_share({**TIER, **CPU, "decode.parallelism": {"tensor": 2}}) == 5.0


def test_the_stock_client_has_one_instance_for_all_ranks():
    plan = planned({**CPU_SPLIT, **TIER, "prefill.parallelism": {"prefillContext": 4}})
    assert plan.tier is not None
    assert plan.tier.instances == 1
    assert plan.kv_shards == 4


@pytest.mark.parametrize(
    ("attention", "parallelism", "shards"),
    [
        ("MLA", {"prefillContext": 8}, 8),
        ("MLA", {"prefillContext": 4, "tensor": 2}, 8),
        ("MLA", {"tensor": 4}, 4),
        ("GQA", {"tensor": 4}, 4),
        ("MHA", {"tensor": 2, "pipeline": 2}, 2),
    ],
)
def test_kv_shards_follow_from_attention_and_ranks(attention: str, parallelism: dict, shards: int):
    changes = {**CPU_SPLIT, "model.attention": attention, "prefill.parallelism": parallelism}
    assert planned(changes).kv_shards == shards


def test_without_prefill_the_decode_ranks_are_the_shards():
    assert planned({"decode.parallelism": {"tensor": 8}, "model.attention": "MLA"}).kv_shards == 8


def test_three_quarters_of_an_instance_hold_kv():
    tier = planned(TIER).tier
    assert tier is not None
    assert tier.maxmemory_bytes == 6 * GIB
    assert tier.resources["requests"]["memory"] == tier.resources["limits"]["memory"] == "8Gi"


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        ({}, 1),
        ({"requests": {"cpu": "500m"}}, 1),
        ({"requests": {"cpu": 2}}, 1),
        ({"requests": {"cpu": "4"}}, 3),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "6"}}, 5),
        ({"limits": {"cpu": "64"}}, 8),
    ],
)
def test_io_threads_leave_one_cpu_for_the_main_thread(resources: dict, threads: int):
    tier = planned({**TIER, "kvCache.remote.resources": resources}).tier
    assert tier is not None
    assert tier.io_threads == threads


BASE = {**TIER, **CPU}


@pytest.mark.parametrize(
    "changes",
    [
        {"model.name": "org/other"},
        {"model.revision": "v2"},
        {"model.digest": "sha256:" + "0" * 64},
        {"model.volume": {"path": "/m", "emptyDir": {}}},
        {"model.maxModelLen": 1024},
        {"kvCache.dtype": "FP8"},
        {"kvCache.chunkTokens": 128},
        {"decode.parallelism": {"tensor": 2}},
        {"engine.version": "0.33.1"},
        {"engine.image": "engine:2"},
        {"decode.image": "engine:3"},
        {"engine.extraArgs": ["--block-size", "32"]},
        {"engine.extraArgs": ["--speculative-config", '{"method": "mtp"}']},
    ],
)
def test_what_makes_old_kv_wrong_starts_a_new_epoch(changes: dict):
    assert epoch({**BASE, **changes}) != epoch(BASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"decode.replicas": 3},
        {"model.servedNames": ["a"]},
        {"engine.extraArgs": ["--max-num-seqs", "8"]},
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"kvCache.remote.memoryPerInstance": "16Gi"},
        {"kvCache.local": {"sizePerReplica": "16Gi"}},
        {"router.replicas": 3},
    ],
)
def test_everything_else_keeps_the_epoch(changes: dict):
    assert epoch({**BASE, **changes}) == epoch(BASE)


def test_a_stated_version_lets_images_change_within_an_epoch():
    stated = {**BASE, "engine.version": "0.33.0"}
    assert epoch(stated) == epoch({**stated, "engine.image": "engine:2"})


VOLUME = {"path": "/m", "persistentVolumeClaim": {"claimName": "v1"}}


def test_other_weights_under_the_same_path_start_a_new_epoch():
    before = {**BASE, "model.volume": VOLUME}
    other = {"path": "/m", "persistentVolumeClaim": {"claimName": "v2"}}
    assert epoch({**before, "model.volume": other}) != epoch(before)
    assert epoch({**before, "model.volume": {**VOLUME, "readOnly": False}}) == epoch(before)


def test_weights_in_the_image_change_with_it_whatever_its_version():
    baked = {**BASE, "model.name": "/models/x", "engine.version": "0.33.0"}
    assert epoch(baked) != epoch({**baked, "engine.image": "engine:2"})
    mounted = {**baked, "model.volume": VOLUME}
    assert epoch(mounted) == epoch({**mounted, "engine.image": "engine:2"})


def test_an_epoch_names_a_database():
    tier = planned(BASE).tier
    assert tier is not None
    assert len(tier.epoch) == 16
    assert 0 <= int(tier.epoch, 16) % tier.databases < tier_module.DATABASES


def test_only_the_role_with_the_cache_waits_for_the_tier():
    plan = planned({**SPLIT, **TIER})
    waits = {role.role: role.wait_for for role in plan.roles}
    assert waits == {
        Role.PREFILL: ("x-valkey-0.x-valkey.default.svc:6379",),
        Role.DECODE: (),
    }
    assert plan.tier is not None
    assert plan.tier.carried_by == (Role.PREFILL,)


def test_the_attention_must_be_stated_for_a_remote_tier():
    changes = {**CPU, "kvCache.remote": {"type": "Managed", "memoryPerInstance": "1Gi"}}
    assert "GQA" in refused(changes)["spec.model.attention"].remedy
