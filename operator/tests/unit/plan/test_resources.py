import pytest

from kvserving_operator.engines.base import Role
from kvserving_operator.plan import topology
from tests.unit.stack import CPU, SPLIT, TIER, planned


def resources(changes: dict, role: Role = Role.DECODE) -> dict:
    found = planned(changes).role(role)
    assert found is not None
    return dict(found.resources)


def test_accelerators_follow_from_parallelism():
    changes = {"decode.parallelism": {"tensor": 2, "data": 4}}
    assert resources(changes)["limits"]["nvidia.com/gpu"] == "8"
    assert resources(changes)["requests"]["nvidia.com/gpu"] == "8"


def test_decode_context_ranks_need_no_accelerators_of_their_own():
    changes = {"decode.parallelism": {"tensor": 4, "decodeContext": 4}}
    assert resources(changes)["limits"]["nvidia.com/gpu"] == "4"


def test_cpu_engines_ask_for_no_device():
    assert "limits" not in resources(CPU)
    assert planned(CPU).gpus == 0


def test_memory_by_default_is_a_request_for_each_accelerator():
    found = resources({"decode.parallelism": {"tensor": 2}})
    assert found["requests"]["memory"] == "66Gi", "2 x 32Gi and 2Gi of shared memory"
    assert "memory" not in found["limits"]


def test_local_kv_and_shared_memory_are_added_to_what_the_engine_is_given():
    changes = {
        **CPU,
        "model.attention": "MLA",
        "kvCache.local": {"sizePerReplica": "8Gi"},
        "decode.resources": {
            "requests": {"cpu": "2", "memory": "4Gi"},
            "limits": {"memory": "6Gi"},
        },
    }
    assert resources(changes) == {
        "requests": {"cpu": "2", "memory": "13Gi"},
        "limits": {"memory": "15Gi"},
    }


def test_a_role_without_the_cache_pays_for_shared_memory_only():
    given = {"resources": {"requests": {"memory": "4Gi"}}, "accelerator": {"resourceName": ""}}
    changes = {**SPLIT, **TIER, "prefill": given, "decode": {"parallelism": {}, **given}}
    assert resources(changes, Role.PREFILL)["requests"]["memory"] == "10Gi"
    assert resources(changes, Role.DECODE)["requests"]["memory"] == "5Gi"


def test_a_limit_alone_stays_alone():
    found = resources({**CPU, "decode.resources": {"limits": {"memory": "4Gi"}}})
    assert found == {"limits": {"memory": "5Gi"}}


def test_numbers_of_yaml_are_quantities():
    found = resources({**CPU, "decode.resources": {"requests": {"cpu": 0.5, "memory": 1073741824}}})
    assert found["requests"] == {"cpu": "0.5", "memory": "2Gi"}


def test_rdma_devices_are_asked_for():
    found = resources({"decode.rdma": {"resources": {"rdma/ib": 8}}})
    assert found["limits"]["rdma/ib"] == "8"


def test_claims_are_handed_on():
    found = resources({**CPU, "decode.resources": {"claims": [{"name": "gpu"}]}})
    assert found["claims"] == [{"name": "gpu"}]


def test_gpus_of_all_replicas_are_counted():
    changes = {
        "prefill": {"replicas": 4, "parallelism": {"prefillContext": 8}},
        "model.attention": "MLA",
        "decode": {"parallelism": {"data": 8}},
        "autoscaling": {"gpuBudget": 64},
    }
    plan = planned(changes)
    assert (plan.gpus, plan.gpu_budget) == (40, 64)


@pytest.mark.parametrize(
    ("setting", "replicas", "allowed"),
    [
        (1, 4, 1),
        (3, 2, 3),
        ("25%", 8, 2),
        ("25%", 7, 1),
        ("1%", 10, 1),
        ("100%", 3, 3),
        ("50%", 0, 1),
    ],
)
def test_max_unavailable_is_rounded_down_but_at_least_one(
    setting: int | str, replicas: int, allowed: int
):
    assert topology.max_unavailable(setting, replicas) == allowed


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 1), ({"replicas": 0}, 0), ({"replicas": 5}, 5)]
)
def test_replicas_are_one_unless_written(given: dict, expected: int):
    found = planned({"decode": {"parallelism": {}, **given}}).role(Role.DECODE)
    assert found is not None
    assert found.replicas == expected


def test_grace_is_drain_and_lease_and_more_than_the_shutdown_timeout():
    plan = planned({**SPLIT, "prefill.drain": {"timeout": "2m", "lease": "50s"}})
    assert [role.grace_seconds for role in plan.roles] == [200, 630]
    short = planned({"decode.drain": {"timeout": "0s"}}).roles[0]
    assert short.grace_seconds > 1 + 10
