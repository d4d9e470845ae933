"""Rows of the admission table: specs that must be refused, with field and remedy."""

from typing import Any

from tests.component.admission_rows import (
    APPLY,
    MANAGED,
    PCP,
    RANKED,
    SGLANG,
    TIERED,
)
from tests.unit.api.builders import ABSENT

# changes, the field, a part of the remedy
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
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
    "ShardedStore with pipeline": (
        {"engine.features": ["ShardedStore"], "prefill.parallelism.pipeline": 2},
        "spec.prefill.parallelism",
        "remove the feature",
    ),
    "ShardedStore with DCP": (
        {"engine.features": ["ShardedStore"], "prefill.parallelism": {"decodeContext": 2}},
        "spec.prefill.parallelism",
        "set them to 1",
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
        RANKED | {"model.attention": "MLA", "kvCache.remote.type": "External"},
        "spec.kvCache.remote.external",
        "add its urlTemplate",
    ),
    "external beside managed": (
        TIERED | {"kvCache.remote.external": {"urlTemplate": "redis://x:1"}},
        "spec.kvCache.remote.external",
        "remove it",
    ),
    "external with a strange scheme": (
        {"kvCache.remote.external": {"urlTemplate": "file:///etc/passwd"}},
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
    "HOT of 81 percent": ({"kvCache.hot.percent": 81}, "spec.kvCache.hot.percent", "equal to 80"),
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
        "spec.decode.parallelism",
        "change one",
    ),
    "autoscaling an absent prefill": (
        {"autoscaling": APPLY | {"prefill": {"maxReplicas": 2}}},
        "spec.autoscaling.prefill",
        "add spec.prefill",
    ),
    "ratio without prefill": (
        {"autoscaling.ratio.max": 2},
        "spec.autoscaling.ratio",
        "add spec.prefill",
    ),
    "autoscaling of nothing": (
        {"autoscaling.mode": "Apply"},
        "spec.autoscaling.mode",
        "add spec.autoscaling.decode",
    ),
    "decode replicas under Apply": (
        {"autoscaling": APPLY, "decode.replicas": 2},
        "spec.decode.replicas",
        "remove it",
    ),
    "prefill replicas under Apply": (
        {"autoscaling": APPLY | {"prefill": {"maxReplicas": 2}}, "prefill.replicas": 1},
        "spec.prefill.replicas",
        "remove it",
    ),
    "min above max": (
        {"autoscaling.decode": {"minReplicas": 5, "maxReplicas": 4}},
        "spec.autoscaling.decode.minReplicas",
        "lower the one",
    ),
    "ratio min above max": (
        {"prefill": {}, "autoscaling.ratio": {"min": 3, "max": 2}},
        "spec.autoscaling.ratio.min",
        "raise the other",
    ),
    "budget below the minimums": (
        PCP | {"autoscaling": {"prefill": {"minReplicas": 2, "maxReplicas": 2}, "gpuBudget": 16}},
        "spec.autoscaling.gpuBudget",
        "raise it",
    ),
    "budget counts twice with BlueGreen": (
        {"decode.replicas": 3, "rollout.strategy": "BlueGreen", "autoscaling.gpuBudget": 5},
        "spec.autoscaling.gpuBudget",
        "lower",
    ),
    "gateway without router": (
        {"router": {"type": "None", "gateway": {"parentRefs": [{"name": "g"}]}}},
        "spec.router.gateway",
        "remove the gateway",
    ),
    "host name without gateway": (
        {"router.gateway.hostnames": ["a.example"]},
        "spec.router.gateway.hostnames",
        "add spec.router.gateway.parentRefs",
    ),
    "Prometheus without address": (
        {"metrics.source": "Prometheus"},
        "spec.metrics.prometheus",
        "add its url",
    ),
    "Prometheus beside Direct": (
        {"metrics.prometheus": {"url": "http://p:9090"}},
        "spec.metrics.prometheus",
        "remove it",
    ),
    "median above p90": ({"sla.ttft": {"p50": "2s", "p90": "1s"}}, "spec.sla.ttft.p50", "lower"),
    "SLA of nothing": ({"sla.itl.p90": "0ms"}, "spec.sla.itl.p90", "raise it"),
    "hasty tuner": ({"tuning.interval": "1s"}, "spec.tuning.interval", "raise it"),
    "engines without time": ({"decode.startupTimeout": "0s"}, "decode.startupTimeout", "raise"),
    "negative duration": ({"decode.drain.timeout": "-1s"}, "decode.drain.timeout", "should match"),
    "size with a wrong unit": (
        {"kvCache.local.sizePerReplica": "480GB"},
        "spec.kvCache.local.sizePerReplica",
        "should match",
    ),
    "odd chunk": ({"kvCache.chunkTokens": 100}, "spec.kvCache.chunkTokens", "multiple of 16"),
    "nobody may be away": ({"rollout.maxUnavailable": 0}, "rollout.maxUnavailable", "equal to 1"),
    "over 100 percent away": ({"rollout.maxUnavailable": "101%"}, "maxUnavailable", "should match"),
    "flag and value in one piece": (
        {"engine.extraArgs": ["--max-num-seqs 8"]},
        "spec.engine.extraArgs",
        "two elements",
    ),
    "the same in a role": (
        {"prefill.extraArgs": ["--max-num-seqs 8"]},
        "spec.prefill.extraArgs",
        "join them by =",
    ),
    "the same in the router": ({"router.extraArgs": ["-x 8"]}, "router.extraArgs", "two elements"),
    "variable of two sources": (
        {"engine.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}]},
        "spec.engine.env[0]",
        "remove one",
    ),
    "variable twice": (
        {"engine.env": [{"name": "A"}, {"name": "A"}]},
        "spec.engine.env[1]",
        "Duplicate value",
    ),
    "served name twice": ({"model.servedNames": ["a", "a"]}, "model.servedNames", "remove one"),
    "feature twice": (
        {"engine.features": ["GraniKV", "GraniKV"]},
        "spec.engine.features[1]",
        "Duplicate value",
    ),
    "unknown feature": (
        {"engine.features": ["Magic"]},
        "spec.engine.features[0]",
        "supported values",
    ),
    "our label": (
        {"prefill.workloadLabels": {"kvserving.io/role": "x"}},
        "spec.prefill.workloadLabels",
        "remove it",
    ),
    "our annotation below a subdomain": (
        {"decode.workloadAnnotations": {"x.kvserving.io/y": "z"}},
        "spec.decode.workloadAnnotations",
        "remove it",
    ),
    "weights over the cache": (
        {"model.volume.path": "/models/hf"},
        "spec.model.volume.path",
        "different paths",
    ),
    "YAML's bare Off": ({"tuning.mode": False}, "spec.tuning.mode", "must be of type string"),
    "unknown field": ({"engine.imagee": "x"}, "spec.engine.imagee", "unknown field"),
}
