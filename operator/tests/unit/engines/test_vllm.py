import json

import pytest

from kvserving_operator.engines.base import Role
from kvserving_operator.engines.registry import ENGINES
from tests.unit.stack import CPU_SPLIT, SPLIT, TIER, kvserving, option, planned

LOCAL = {"model.attention": "MLA", "kvCache.local": {"sizePerReplica": "8Gi"}}


def arguments(changes: dict, role: Role = Role.DECODE) -> tuple[str, ...]:
    found = planned(changes).role(role)
    assert found is not None
    return found.launch.arguments


def environment(changes: dict, role: Role = Role.DECODE) -> dict:
    found = planned(changes).role(role)
    assert found is not None
    return {
        v.name: v.value if v.value_from is None else v.value_from for v in found.launch.environment
    }


def transfer(changes: dict, role: Role) -> dict | None:
    config = option(arguments(changes, role), "--kv-transfer-config")
    return None if config is None else json.loads(config)


def test_the_model_comes_first_and_the_user_last():
    words = arguments(
        {"engine.extraArgs": ["--max-num-seqs", "8"], "decode.extraArgs": ["--seed", "1"]}
    )
    assert words[0] == "org/model"
    assert words[-4:] == ("--max-num-seqs", "8", "--seed", "1")


def test_weights_on_a_volume_are_loaded_from_its_path_without_revision():
    words = arguments(
        {
            "model.volume": {"path": "/models/m", "persistentVolumeClaim": {"claimName": "c"}},
            "model.revision": "v1",
        }
    )
    assert words[0] == "/models/m"
    assert option(words, "--served-model-name") == "org/model"
    assert "--revision" not in words


def test_served_names_revision_and_length_reach_the_engine():
    words = arguments(
        {"model.servedNames": ["a", "b"], "model.revision": "v1", "model.maxModelLen": 4096}
    )
    place = words.index("--served-model-name")
    assert words[place + 1 : place + 3] == ("a", "b")
    assert option(words, "--revision") == "v1"
    assert option(words, "--max-model-len") == "4096"


def test_what_is_left_out_is_left_to_the_engine():
    words = arguments({})
    for flag in ("--max-model-len", "--revision", "--kv-cache-dtype", "--tensor-parallel-size"):
        assert flag not in words


@pytest.mark.parametrize(
    ("dtype", "text"), [("Auto", None), ("FP8", "fp8"), ("BF16", "bfloat16"), ("FP16", "float16")]
)
def test_kv_dtype_is_written_in_the_engine_s_words(dtype: str, text: str | None):
    assert option(arguments({"kvCache.dtype": dtype}), "--kv-cache-dtype") == text


def test_parallel_sizes_become_flags():
    words = arguments(
        {
            "decode.parallelism": {
                "tensor": 4,
                "pipeline": 2,
                "data": 8,
                "decodeContext": 2,
                "expert": True,
            }
        }
    )
    assert option(words, "--tensor-parallel-size") == "4"
    assert option(words, "--pipeline-parallel-size") == "2"
    assert option(words, "--data-parallel-size") == "8"
    assert option(words, "--decode-context-parallel-size") == "2"
    assert "--enable-expert-parallel" in words


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("600s", "20"), ("5s", "5"), ("0s", "1"), ("1500ms", "2")]
)
def test_shutdown_timeout_lies_within_the_drain(timeout: str, seconds: str):
    assert (
        option(arguments({"decode.drain": {"timeout": timeout}}), "--shutdown-timeout") == seconds
    )


def test_prefill_with_a_cache_carries_nixl_first_and_lmcache_second():
    config = transfer({**SPLIT, **TIER}, Role.PREFILL)
    assert config is not None
    assert (config["kv_connector"], config["kv_role"]) == ("MultiConnector", "kv_producer")
    children = config["kv_connector_extra_config"]["connectors"]
    assert [(c["kv_connector"], c["kv_role"]) for c in children] == [
        ("NixlConnector", "kv_producer"),
        ("LMCacheConnectorV1", "kv_both"),
    ]
    assert config["kv_load_failure_policy"] == "recompute"


def test_decode_carries_nixl_alone_and_agrees_on_the_kv_manager():
    changes = {**SPLIT, **TIER}
    config = transfer(changes, Role.DECODE)
    assert config is not None
    assert (config["kv_connector"], config["kv_role"]) == ("NixlConnector", "kv_consumer")
    for role in (Role.PREFILL, Role.DECODE):
        assert "--disable-hybrid-kv-cache-manager" in arguments(changes, role)


def test_without_a_cache_both_roles_carry_nixl_alone_and_keep_the_kv_manager():
    for role, kv_role in ((Role.PREFILL, "kv_producer"), (Role.DECODE, "kv_consumer")):
        config = transfer(SPLIT, role)
        assert config is not None
        assert (config["kv_connector"], config["kv_role"]) == ("NixlConnector", kv_role)
        assert "--disable-hybrid-kv-cache-manager" not in arguments(SPLIT, role)


def test_without_prefill_decode_carries_lmcache_for_both_directions():
    assert transfer(TIER, Role.DECODE) == {
        "kv_connector": "LMCacheConnectorV1",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
    }


def test_without_prefill_and_cache_there_is_no_connector():
    assert transfer({}, Role.DECODE) is None
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" not in environment({})


def test_nixl_settings_reach_the_connector_and_own_keys_win():
    nixl = {
        "backends": ["UCX", "POSIX"],
        "numThreads": 2,
        "bufferDevice": "CPU",
        "extraConfig": {"enforce_handshake_compat": False},
    }
    config = transfer(
        {**SPLIT, "transfer.nixl": nixl, "prefill.drain": {"lease": "100s"}}, Role.DECODE
    )
    assert config is not None
    assert config["kv_buffer_device"] == "cpu"
    assert config["kv_connector_extra_config"] == {
        "backends": ["UCX", "POSIX"],
        "num_threads": 2,
        "kv_lease_duration": 60,
        "enforce_handshake_compat": False,
    }


def test_both_roles_use_the_lease_of_prefill():
    for role in (Role.PREFILL, Role.DECODE):
        config = transfer({**SPLIT, "prefill.drain": {"lease": "50s"}}, role)
        assert config is not None
        assert config["kv_connector_extra_config"]["kv_lease_duration"] == 30


def test_a_failed_load_is_recomputed_but_not_with_context_parallelism():
    changes = {**SPLIT, "prefill.parallelism": {"prefillContext": 8}, "model.attention": "MLA"}
    policies = {}
    for role in (Role.PREFILL, Role.DECODE):
        config = transfer(changes, role)
        assert config is not None
        policies[role] = config["kv_load_failure_policy"]
    assert policies == {Role.PREFILL: "fail", Role.DECODE: "recompute"}


def test_load_failure_policy_is_the_user_s():
    config = transfer({**SPLIT, "transfer.loadFailurePolicy": "Fail"}, Role.DECODE)
    assert config is not None
    assert config["kv_load_failure_policy"] == "fail"


def test_the_side_channel_is_at_the_pod_s_address():
    found = environment(SPLIT, Role.PREFILL)
    assert found["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert found["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"


def test_ucx_is_confined_over_tcp_only():
    assert environment(SPLIT, Role.PREFILL)["UCX_TCP_PORT_RANGE"] == "15600-15699"
    rdma = {**SPLIT, "prefill.rdma": {"resources": {"rdma/ib": "8"}}}
    assert "UCX_TCP_PORT_RANGE" not in environment(rdma, Role.PREFILL)


def test_only_the_role_with_the_cache_gets_its_environment():
    changes = {**SPLIT, **TIER}
    prefill, decode = (environment(changes, role) for role in (Role.PREFILL, Role.DECODE))
    assert prefill["LMCACHE_CONFIG_FILE"] == "/etc/kvserving/lmcache/lmcache.yaml"
    assert not [name for name in decode if name.startswith("LMCACHE_")]


def test_the_tier_s_password_is_a_reference_and_defined_before_its_use():
    found = planned({**SPLIT, **TIER}).role(Role.PREFILL)
    assert found is not None
    names = [variable.name for variable in found.launch.environment]
    assert names.index("LMCACHE_RESP_PASSWORD") < names.index("LMCACHE_REMOTE_URL")
    variables = environment({**SPLIT, **TIER}, Role.PREFILL)
    assert variables["LMCACHE_RESP_PASSWORD"] == {
        "secretKeyRef": {"name": "x-auth", "key": "valkey-engine-password"}
    }
    assert variables["LMCACHE_REMOTE_URL"].startswith(
        "redis://$(LMCACHE_RESP_USERNAME):$(LMCACHE_RESP_PASSWORD)@x-valkey-0.x-valkey.default.svc:6379/"
    )


def test_a_local_cache_needs_no_address():
    found = environment(LOCAL)
    assert "LMCACHE_CONFIG_FILE" in found
    assert "LMCACHE_REMOTE_URL" not in found
    assert "LMCACHE_RESP_PASSWORD" not in found


def test_the_role_s_environment_wins_over_the_engine_s_over_ours():
    changes = {
        "engine.env": [{"name": "HOME", "value": "/a"}, {"name": "A", "value": "1"}],
        "decode.env": [{"name": "A", "value": "2"}],
    }
    found = environment(changes)
    assert (found["HOME"], found["A"]) == ("/a", "2")


def test_hub_access_becomes_environment():
    changes = {
        "model.huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}, "offline": True},
        "model.cache": {"mountPath": "/hub"},
    }
    found = environment(changes)
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert found["HF_HUB_OFFLINE"] == "1"
    assert found["HF_HOME"] == "/hub"
    assert "HF_HUB_OFFLINE" not in environment({})


def test_prefill_tells_which_ports_decode_opens():
    found = planned({**SPLIT, "prefill.parallelism": {"data": 2}}).role(Role.PREFILL)
    assert found is not None
    assert [(p.number, p.last) for p in found.launch.peer_ports] == [(5600, 5601), (15600, 15699)]


def test_over_rdma_only_the_handshake_is_a_port():
    found = planned({**SPLIT, "prefill.rdma": {"resources": {"rdma/ib": "1"}}}).role(Role.PREFILL)
    assert found is not None
    assert [p.number for p in found.launch.peer_ports] == [5600]


def test_arguments_hold_no_empty_word():
    for changes in ({}, SPLIT, {**SPLIT, **TIER}, CPU_SPLIT):
        for role in planned(changes).roles:
            assert all(role.launch.arguments)


def test_kv_arguments_are_the_flags_that_shape_kv_with_their_values():
    engine = ENGINES[kvserving().spec.engine.type]
    words = [
        "--block-size",
        "32",
        "--max-num-seqs",
        "8",
        "--dtype=float32",
        "-q",
        "fp8",
        "--seed",
        "1",
    ]
    assert engine.kv_arguments(words) == ("--block-size", "32", "--dtype=float32", "-q", "fp8")
