import json

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.engines.registry import ENGINES
from kvserving_operator.engines.sglang_owned import ENGINE_ONLY_FLAGS, OWNED_FLAGS
from tests.unit.stack import (
    SPLIT,
    container,
    option,
    planned,
    pod_spec,
    refused,
    rendered,
)

ALONE = {"engine.type": "SGLang", "router.type": "SMG"}
PAIR = {**ALONE, **SPLIT}


def launch(changes: dict, role: Role = Role.DECODE):
    found = planned(changes).role(role)
    assert found is not None
    return found.launch


def environment(changes: dict, role: Role = Role.DECODE) -> dict:
    return {v.name: v.value for v in launch(changes, role).environment}


def test_the_model_and_the_user_s_flags():
    words = launch(
        {
            **ALONE,
            "model.servedNames": ["a"],
            "model.revision": "v1",
            "model.maxModelLen": 4096,
            "engine.extraArgs": ["--page-size", "64"],
            "decode.extraArgs": ["--sleep-on-idle"],
        }
    ).arguments
    assert option(words, "--model-path") == "org/model"
    assert option(words, "--served-model-name") == "a"
    assert option(words, "--revision") == "v1"
    assert option(words, "--context-length") == "4096"
    assert words[-3:] == ("--page-size", "64", "--sleep-on-idle")


def test_weights_on_a_volume_have_no_revision():
    volume = {"path": "/models/m", "persistentVolumeClaim": {"claimName": "c"}}
    words = launch({**ALONE, "model.volume": volume, "model.revision": "v1"}).arguments
    assert option(words, "--model-path") == "/models/m"
    assert "--revision" not in words


def test_data_lies_inside_tensor_and_costs_no_accelerator():
    parallelism = {"tensor": 8, "data": 4, "pipeline": 2, "expert": True}
    plan = planned({**ALONE, "decode.parallelism": parallelism})
    words = plan.roles[0].launch.arguments
    assert option(words, "--tp-size") == "8"
    assert option(words, "--pp-size") == "2"
    assert option(words, "--attn-dp-size") == "4"
    assert option(words, "--ep-size") == "8"
    assert plan.gpus == 16


@pytest.mark.parametrize(("dtype", "word"), [("Auto", None), ("FP8", "fp8_e4m3"), ("BF16", "bf16")])
def test_kv_dtype_is_written_in_the_engine_s_words(dtype: str, word: str | None):
    words = launch({**ALONE, "kvCache.dtype": dtype}).arguments
    assert option(words, "--kv-cache-dtype") == word


def test_roles_of_a_pair_transfer_by_nixl():
    for role, mode in ((Role.PREFILL, "prefill"), (Role.DECODE, "decode")):
        words = launch(PAIR, role).arguments
        assert option(words, "--disaggregation-mode") == mode
        assert option(words, "--disaggregation-transfer-backend") == "nixl"
    assert "--disaggregation-mode" not in launch(ALONE).arguments


def test_nixl_settings_reach_both_roles_as_text():
    nixl = {"backends": ["LIBFABRIC"], "numThreads": 2, "extraConfig": {"a": 1}}
    found = environment({**PAIR, "transfer.nixl": nixl})
    assert found["SGLANG_DISAGGREGATION_NIXL_BACKEND"] == "LIBFABRIC"
    parameters = json.loads(found["SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS"])
    assert parameters == {"a": "1", "num_threads": "2"}


def test_each_role_reaches_the_ports_of_the_other():
    prefill, decode = launch(PAIR, Role.PREFILL), launch(PAIR)
    assert (prefill.peers, decode.peers) == ((Role.DECODE,), (Role.PREFILL,))
    assert prefill.peer_ports == (ports.BOOTSTRAP, ports.UNPRIVILEGED)
    assert decode.peer_ports == (ports.UNPRIVILEGED,)
    assert launch(ALONE).peer_ports == ()


def test_the_router_learns_the_bootstrap_port_of_prefill():
    assert launch(PAIR, Role.PREFILL).annotations == {"sglang.ai/bootstrap-port": "8998"}
    assert launch(PAIR).annotations == {}


def test_health_is_no_generation():
    assert environment(ALONE)["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"router.type": "VLLMRouter"}, "spec.router.type"),
        ({"kvCache.local": {"sizePerReplica": "1Gi"}, "model.attention": "MLA"}, "spec.kvCache"),
        (
            {"prefill.parallelism": {"prefillContext": 2}, "model.attention": "MLA"},
            "spec.prefill.parallelism.prefillContext",
        ),
        ({"decode.parallelism": {"tensor": 8, "data": 3}}, "spec.decode.parallelism.data"),
        (
            {"decode.parallelism": {"tensor": 8, "decodeContext": 3}},
            "spec.decode.parallelism.decodeContext",
        ),
        ({"model.servedNames": ["a", "b"]}, "spec.model.servedNames"),
        ({"kvCache.dtype": "FP16"}, "spec.kvCache.dtype"),
        ({"transfer.nixl": {"backends": ["UCX", "GDS"]}}, "spec.transfer.nixl.backends"),
        ({"transfer.nixl": {"bufferDevice": "CPU"}}, "spec.transfer.nixl.bufferDevice"),
        (
            {"transfer.nixl": {"extraConfig": {"num_threads": "1"}}},
            "spec.transfer.nixl.extraConfig.num_threads",
        ),
        ({"transfer.loadFailurePolicy": "Fail"}, "spec.transfer.loadFailurePolicy"),
        ({"engine.extraArgs": ["--tp", "2"]}, "spec.engine.extraArgs[0]"),
        ({"engine.extraArgs": ["--enable-lmcache"]}, "spec.engine.extraArgs[0]"),
        ({"decode.extraArgs": ["--page-size=16"]}, "spec.decode.extraArgs[0]"),
        (
            {"engine.env": [{"name": "SGLANG_DISAGGREGATION_NIXL_BACKEND", "value": "x"}]},
            "spec.engine.env[0]",
        ),
        ({"decode.extraArgs": ["x"]}, "spec.decode.extraArgs[0]"),
    ],
)
def test_what_sglang_cannot_do_is_refused_with_a_remedy(changes: dict, field: str):
    fault = refused({**PAIR, **changes})[field]
    assert fault.remedy


HOT = {**ALONE, "engine.features": ["GraniKV"], "kvCache.hot": {"mode": "Fixed", "percent": 30}}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"decode.parallelism": {"tensor": 2}}, "spec.decode.parallelism.tensor"),
        ({"decode.parallelism": {"pipeline": 2}}, "spec.decode.parallelism.pipeline"),
        (SPLIT, "spec.prefill"),
        ({"model.attention": "MLA"}, "spec.model.attention"),
        ({"model.attention": "Hybrid"}, "spec.model.attention"),
        ({"kvCache.dtype": "FP8"}, "spec.kvCache.dtype"),
        (
            {"engine.extraArgs": ["--decode-attention-backend", "fa3"]},
            "spec.engine.extraArgs[0]",
        ),
        ({"engine.env": [{"name": "GRANIKV_TRY", "value": "0.5.23"}]}, "spec.engine.env[0]"),
    ],
)
def test_hot_is_refused_where_granikv_would_not_start_or_hold_nothing(changes: dict, field: str):
    fault = refused({**HOT, **changes})[field]
    assert fault.reason is Reason.INVALID
    assert fault.remedy


@pytest.mark.parametrize("mode", ["Fixed", "Auto"])
def test_hot_starts_its_backend_with_its_share_and_its_agent_finds_it(mode: str):
    hot = {"mode": mode, "percent": 30, "minPercent": 10, "maxPercent": 60}
    changes = {**HOT, "kvCache.hot": hot}
    assert option(launch(changes).arguments, "--decode-attention-backend") == "granikv"
    found = environment(changes)
    assert found["GRANIKV_HOT_PERCENT"] == "30"
    assert (found["GRANIKV_MIN_PERCENT"], found["GRANIKV_MAX_PERCENT"]) == ("10", "60")
    assert launch(changes).hot == ports.GRANIKV_CONTROL
    agent = container(pod_spec(rendered(changes), "x-decode"), "agent")
    urls = {v["name"]: v.get("value") for v in agent["env"]}
    port = found["GRANIKV_PORT"]
    assert urls["KVSERVING_AGENT_HOT_URL"] == f"http://127.0.0.1:{port}"


def test_the_feature_alone_changes_no_object():
    promised = {**ALONE, "engine.features": ["GraniKV"]}
    assert rendered(promised) == rendered(ALONE)
    assert launch(promised).hot is None


@pytest.mark.parametrize("argument", ["--sleep-on-idle", "--enable-metrics-for-all-schedulers"])
def test_other_flags_are_free(argument: str):
    planned({**PAIR, "engine.extraArgs": [argument]})


def test_flags_that_the_operator_writes_are_owned():
    words = launch(PAIR, Role.PREFILL).arguments
    for word in words:
        assert not word.startswith("--") or OWNED_FLAGS.find(word), word


def test_kv_flags_go_into_the_epoch():
    engine = ENGINES["SGLang"]  # type: ignore[index]
    arguments = ["--page-size", "64", "--sleep-on-idle", "--dtype=half"]
    assert engine.kv_arguments(arguments) == ("--page-size", "64", "--dtype=half")
    assert ENGINE_ONLY_FLAGS.find("--page-size")
