"""Rows of the admission table: refused specs of model, engine, roles and KV cache."""

from typing import Any

from tests.component.admission_rows import (
    MANAGED,
    PCP,
    SGLANG,
    STORE,
    TIERED,
)
from tests.unit.api.builders import ABSENT

# changes, the field, a part of the remedy
DATA_PATH: dict[str, tuple[dict[str, Any], str, str]] = {
    "model name absent": ({"model.name": ABSENT}, "spec.model.name", "Required value"),
    "image absent": ({"engine.image": ABSENT}, "spec.engine.image", "Required value"),
    "parallelism absent": ({"decode": {}}, "spec.decode.parallelism", "Required value"),
    "PCP with GQA": (PCP | {"model.attention": "GQA"}, "spec.model.attention", "set it to MLA"),
    "PCP with Hybrid": (PCP | {"model.attention": "Hybrid"}, "spec.model.attention", "to 1"),
    "PCP with data": (
        PCP | {"prefill.parallelism.data": 2},
        "prefill.parallelism.data",
        "more rep",
    ),
    "PCP on vLLM 0.30": (PCP | {"engine.version": "0.30.9"}, "spec.engine.version", "newer image"),
    "PCP and decode DCP": (
        PCP | {"decode.parallelism": {"tensor": 8, "decodeContext": 8}},
        "spec.decode.parallelism.decodeContext",
        "set the one or the other to 1",
    ),
    "PCP on decode": (
        {"decode.parallelism.prefillContext": 2},
        "spec.decode.parallelism.prefillContext",
        "move it to spec.prefill",
    ),
    "the store with pipeline": (
        TIERED | {"prefill.parallelism.pipeline": 2},
        "spec.prefill.parallelism",
        "remove the store's features",
    ),
    "the store with DCP": (
        TIERED | {"prefill.parallelism": {"tensor": 2, "decodeContext": 2}},
        "spec.prefill.parallelism",
        "set them to 1",
    ),
    "the store with data, no prefill": (
        TIERED | {"decode.parallelism.data": 2},
        "spec.decode.parallelism",
        "more replicas instead of data",
    ),
    "ShardedStore alone": (
        {"engine.features": ["ShardedStore"]},
        "spec.engine.features",
        "add RankedRemote",
    ),
    "AsyncLoading of a stock image": (
        MANAGED | {"model.attention": "MLA", "engine.features": ["AsyncLoading"]},
        "spec.engine.features",
        "add RankedRemote",
    ),
    "RankedRemote alone for MLA": (
        MANAGED | {"model.attention": "MLA", "engine.features": ["RankedRemote"]},
        "spec.engine.features",
        "add ShardedStore",
    ),
    "RankedRemote alone for PCP": (
        MANAGED | {"prefill.parallelism.prefillContext": 2, "engine.features": ["RankedRemote"]},
        "spec.engine.features",
        "add ShardedStore",
    ),
    "Bypass, stock": (
        MANAGED | {"model.attention": "MLA", "kvCache.remote.loading.mode": "Bypass"},
        "spec.kvCache.remote.loading.mode",
        "set type to None",
    ),
    "the store's features with SGLang": (
        SGLANG | {"engine.features": ["GraniKV", "RankedRemote"]},
        "spec.engine.features",
        "remove the others",
    ),
    "remote without attention": (MANAGED, "spec.model.attention", "set it to MLA, GQA or MHA"),
    "remote with Hybrid": (MANAGED | {"model.attention": "Hybrid"}, "spec.kvCache", "to None"),
    "local with Hybrid": (
        {"model.attention": "Hybrid", "kvCache.local.sizePerReplica": "1Gi"},
        "spec.kvCache",
        "remove spec.kvCache.local",
    ),
    "remote with local 0": (
        TIERED | {"kvCache.local.sizePerReplica": "0"},
        "spec.kvCache.local.sizePerReplica",
        "leave it out",
    ),
    "managed without memory": (
        {"model.attention": "MLA", "kvCache.remote.type": "Managed"},
        "spec.kvCache.remote.memoryPerInstance",
        "for example 16Gi",
    ),
    "managed with little memory": (
        TIERED | {"kvCache.remote.memoryPerInstance": "1Mi"},
        "spec.kvCache.remote.memoryPerInstance",
        "raise it",
    ),
    "external without address": (
        STORE | {"model.attention": "MLA", "kvCache.remote.type": "External"},
        "spec.kvCache.remote.external",
        "add its urlTemplate",
    ),
    "external beside managed": (
        TIERED | {"kvCache.remote.external": {"urlTemplate": "redis://x:1"}},
        "spec.kvCache.remote.external",
        "remove it",
    ),
    "external with a strange scheme": (
        {
            "model.attention": "MLA",
            "kvCache.remote": {"type": "External", "external": {"urlTemplate": "file:///etc/x"}},
        },
        "spec.kvCache.remote.external.urlTemplate",
        "should match",
    ),
    "persistence of an external tier": (
        {
            "model.attention": "MLA",
            "kvCache.remote": {
                "type": "External",
                "external": {"urlTemplate": "redis://x:1"},
                "persistence": {"volumeClaim": {"size": "1Gi"}},
            },
        },
        "spec.kvCache.remote.persistence",
        "set type to Managed",
    ),
    "TLS without a tier": (
        {"kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s"}}},
        "spec.kvCache.remote.tls",
        "remove it",
    ),
    "TLS without its Secret": (
        TIERED | {"kvCache.remote.tls.mode": "Secret"},
        "spec.kvCache.remote.tls.secretRef",
        "add it",
    ),
    "TLS without its issuer": (
        TIERED | {"kvCache.remote.tls.mode": "CertManager"},
        "spec.kvCache.remote.tls.issuerRef",
        "add it",
    ),
    "issuer without TLS": (
        TIERED | {"kvCache.remote.tls.issuerRef": {"name": "i"}},
        "spec.kvCache.remote.tls.issuerRef",
        "change the mode",
    ),
    "two instances, stock": (
        {"kvCache.remote.instancesPerRank": 2},
        "spec.kvCache.remote.instancesPerRank",
        "spec.engine.features",
    ),
    "Async, stock": (
        {"kvCache.remote.loading.mode": "Async"},
        "spec.kvCache.remote.loading.mode",
        "set the mode to Auto",
    ),
    "HOT, stock": ({"kvCache.hot.mode": "Fixed"}, "spec.kvCache.hot.mode", "mode to Off"),
    "HOT below its minimum": (
        {"engine.features": ["GraniKV"], "kvCache.hot": {"percent": 10, "minPercent": 20}},
        "spec.kvCache.hot.percent",
        "change one",
    ),
    "HOT above its maximum": (
        {"kvCache.hot": {"maxPercent": 10}},
        "spec.kvCache.hot.percent",
        "change one",
    ),
    "HOT of 81 percent": ({"kvCache.hot.maxPercent": 81}, "hot.maxPercent", "equal to 80"),
    "HOT of 4 percent": ({"kvCache.hot.minPercent": 4}, "hot.minPercent", "equal to 5"),
    "GQA tier, stock, on GPUs": (
        MANAGED | {"model.attention": "GQA"},
        "spec.engine.features",
        "use an image that has it",
    ),
    "GQA local tier, stock, on GPUs": (
        {"model.attention": "GQA", "kvCache.local.sizePerReplica": "1Gi", "prefill": {}},
        "spec.engine.features",
        "remove spec.kvCache.local",
    ),
    "PCP tier, stock, on GPUs": (MANAGED | PCP, "spec.engine.features", "use an image"),
    "SGLang with a tier": (
        SGLANG | MANAGED | {"model.attention": "MLA"},
        "spec.kvCache",
        "set spec.kvCache.remote.type to None",
    ),
    "SGLang with vllm-router": ({"engine.type": "SGLang"}, "spec.router.type", "SMG or None"),
    "SGLang with PCP": (SGLANG | PCP, "prefill.parallelism.prefillContext", "set it to 1"),
    "SGLang data outside tensor": (
        SGLANG | {"decode.parallelism": {"tensor": 2, "data": 4}},
        "spec.decode.parallelism.data",
        "change one",
    ),
    "SGLang data outside tensor on prefill": (
        SGLANG | {"prefill.parallelism": {"tensor": 4, "data": 3}},
        "spec.prefill.parallelism.data",
        "change one",
    ),
}
