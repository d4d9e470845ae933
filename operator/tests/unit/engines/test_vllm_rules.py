"""Each rule: the spec that breaks it, the field that is named, and the nearest legal spec."""

import pytest

from kvserving_operator.api.conditions import Reason
from kvserving_operator.engines.vllm_rules import RULES
from tests.unit.stack import CPU, CPU_SPLIT, SPLIT, TIER, planned, refused

MLA = {"model.attention": "MLA"}
GQA = {"model.attention": "GQA"}
PCP = {**SPLIT, **MLA, "prefill.parallelism": {"prefillContext": 8}}
LOCAL = {"kvCache.local": {"sizePerReplica": "8Gi"}}

REFUSED = [
    ({"engine.extraArgs": ["--max-num-seqs 8"]}, "spec.engine.extraArgs[0]", "two elements"),
    ({"engine.extraArgs": ["--port", "9000"]}, "spec.engine.extraArgs[0]", "ports"),
    ({"decode.extraArgs": ["--a", "-tp=2"]}, "spec.decode.extraArgs[1]", "parallelism"),
    (
        {**SPLIT, "prefill.extraArgs": ["--max_model_len=5"]},
        "spec.prefill.extraArgs[0]",
        "spec.model.maxModelLen",
    ),
    ({"decode.extraArgs": ["--block-size", "32"]}, "spec.decode.extraArgs[0]", "spec.engine"),
    ({"decode.extraArgs": ["--quant=fp8"]}, "spec.decode.extraArgs[0]", "spec.engine"),
    ({"engine.env": [{"name": "PYTHONHASHSEED", "value": "1"}]}, "spec.engine.env[0]", "remove"),
    (
        {"decode.env": [{"name": "A", "value": "1"}, {"name": "LMCACHE_CHUNK_SIZE", "value": "1"}]},
        "spec.decode.env[1]",
        "spec.kvCache",
    ),
    (
        {"engine.env": [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "127.0.0.1"}]},
        "spec.engine.env[0]",
        "spec.transfer",
    ),
    (
        {"engine.env": [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}]},
        "spec.engine.env[0]",
        "expandable_segments",
    ),
    (
        {**SPLIT, "transfer.nixl": {"extraConfig": {"kv_lease_duration": 5}}},
        "spec.transfer.nixl.extraConfig.kv_lease_duration",
        "spec.prefill.drain.lease",
    ),
    (
        {**MLA, "decode.parallelism": {"prefillContext": 2}},
        "spec.decode.parallelism.prefillContext",
        "spec.prefill",
    ),
    ({**PCP, **GQA}, "spec.prefill.parallelism.prefillContext", "spec.model.attention"),
    ({**PCP, "engine.version": "0.30.2"}, "spec.engine.version", "0.31"),
    (
        {**PCP, "prefill.parallelism": {"prefillContext": 8, "data": 2}},
        "spec.prefill.parallelism.data",
        "1",
    ),
    (
        {**PCP, "prefill.parallelism": {"prefillContext": 8, "decodeContext": 8}},
        "spec.prefill.parallelism.decodeContext",
        "1",
    ),
    ({**PCP, "engine.extraArgs": ["--enable-dbo"]}, "spec.engine.extraArgs[0]", "prefillContext"),
    (
        {**PCP, "prefill.extraArgs": ["--limit-mm-per-prompt={}"]},
        "spec.prefill.extraArgs[0]",
        "prefillContext",
    ),
    (
        {"decode.parallelism": {"tensor": 4, "decodeContext": 3}},
        "spec.decode.parallelism.decodeContext",
        "divisor",
    ),
    (
        {**PCP, "decode.parallelism": {"tensor": 2, "decodeContext": 2}},
        "spec.decode.parallelism.decodeContext",
        "1",
    ),
    ({**TIER, "engine.extraArgs": ["--enable-lora"]}, "spec.engine.extraArgs[0]", "kvCache"),
    (
        {**MLA, **LOCAL, "decode.extraArgs": ["--max-loras", "2"]},
        "spec.decode.extraArgs[0]",
        "kvCache",
    ),
    ({"model.attention": "Hybrid", **LOCAL, **CPU}, "spec.kvCache", "remove"),
    ({**PCP, **TIER}, "spec.kvCache", "prefillContext"),
    ({**PCP, **LOCAL}, "spec.kvCache", "prefillContext"),
    ({**TIER, **GQA}, "spec.kvCache", "RankedRemote"),
    ({**LOCAL, "model.attention": "MHA"}, "spec.kvCache", "RankedRemote"),
    *(
        ({**TIER, **GQA, **CPU, **asked}, "spec.kvCache", "RankedRemote")
        for asked in (
            {"decode.resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}},
            {"decode.resources": {"requests": {"example.org/gpu": "1"}}},
            {"decode.resources": {"claims": [{"name": "device"}]}},
        )
    ),
    (LOCAL, "spec.model.attention", "MLA"),
    (
        {**TIER, "decode.parallelism": {"tensor": 2, "decodeContext": 2}},
        "spec.decode.parallelism.decodeContext",
        "set it to 1",
    ),
    (
        {**SPLIT, **MLA, **LOCAL, "prefill.parallelism": {"tensor": 2, "decodeContext": 2}},
        "spec.prefill.parallelism.decodeContext",
        "set it to 1",
    ),
    (
        {**TIER, **CPU, "decode.parallelism": {"pipeline": 2}},
        "spec.decode.parallelism.pipeline",
        "set it to 1",
    ),
    (
        {**LOCAL, **CPU, "decode.parallelism": {"pipeline": 2}},
        "spec.decode.parallelism.pipeline",
        "set it to 1",
    ),
    (
        {**TIER, "kvCache.chunkTokens": 64, "engine.extraArgs": ["--block-size", "48"]},
        "spec.kvCache.chunkTokens",
        "multiple",
    ),
    (
        {**TIER, "kvCache.chunkTokens": 64, "engine.extraArgs": ["--block_size=128"]},
        "spec.kvCache.chunkTokens",
        "multiple",
    ),
    ({**SPLIT, "prefill.drain": {"lease": "5s"}}, "spec.prefill.drain.lease", "10s"),
]


@pytest.mark.parametrize(("changes", "field", "remedy"), REFUSED)
def test_refused_with_field_and_remedy(changes: dict, field: str, remedy: str):
    faults = refused(changes)
    assert field in faults, {name: str(fault) for name, fault in faults.items()}
    assert remedy in faults[field].remedy + faults[field].what
    assert faults[field].reason is Reason.INVALID


ACCEPTED = [
    {"engine.extraArgs": ["--max-num-seqs", "8", "--block-size=32", "--enforce-eager"]},
    {"engine.extraArgs": ["--hf-overrides", '{"rope": {"a": "b c"}}']},
    {"engine.env": [{"name": "LMCACHE_LOG_LEVEL", "value": "DEBUG"}]},
    {"engine.env": [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "max_split_size_mb:512"}]},
    {"engine.env": [{"name": "VLLM_ATTENTION_BACKEND", "value": "X"}]},
    PCP,
    {**PCP, "model.attention": "Auto"},
    {**PCP, "engine.version": "0.31.0"},
    {**PCP, "engine.version": "1.0.0"},
    {**PCP, "decode.extraArgs": ["--enable-dbo"]},
    {"engine.extraArgs": ["--enable-lora"]},
    {**TIER, "engine.extraArgs": ["--block-size", "64"]},
    {**TIER, "engine.extraArgs": ["--block-size", "auto"]},
    {"kvCache.chunkTokens": 64, "engine.extraArgs": ["--block-size", "128"]},
    {"decode.parallelism": {"tensor": 8, "decodeContext": 4}},
    {"model.attention": "Hybrid"},
    TIER,
    {**SPLIT, **TIER},
    {**TIER, **GQA, **CPU},
    {**TIER, **GQA, **CPU, "decode.resources": {"limits": {"cpu": 2, "example.org/fuse": 1}}},
    {**TIER, **GQA, **CPU, "decode.parallelism": {"pipeline": 2}},
    {**SPLIT, **TIER, "decode.parallelism": {"tensor": 2, "decodeContext": 2, "pipeline": 2}},
    {**CPU_SPLIT, **TIER, "prefill.parallelism": {"prefillContext": 4}},
    {**CPU, **LOCAL},
    {"kvCache.local": {"sizePerReplica": "0"}},
    {**SPLIT, "prefill.drain": {"lease": "10s"}},
]


@pytest.mark.parametrize("changes", ACCEPTED)
def test_accepted(changes: dict):
    planned(changes)


def test_every_mistake_is_told_at_once():
    faults = refused(
        {
            **PCP,
            "engine.version": "0.30.0",
            "engine.extraArgs": ["--port", "1", "--enable-dbo"],
            "decode.env": [{"name": "PYTHONHASHSEED", "value": "1"}],
            "prefill.drain": {"lease": "1s"},
        }
    )
    assert set(faults) == {
        "spec.engine.extraArgs[0]",
        "spec.engine.extraArgs[2]",
        "spec.engine.version",
        "spec.decode.env[0]",
        "spec.prefill.drain.lease",
    }


def test_every_rule_says_why_it_exists():
    assert all(rule.__doc__ for rule in RULES)
