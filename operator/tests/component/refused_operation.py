"""Rows of the admission table: refused specs of the sections that run the stack."""

from typing import Any

from tests.component.admission_rows import APPLY, PCP

# changes, the field, a part of the remedy
OPERATION: dict[str, tuple[dict[str, Any], str, str]] = {
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
    "two credentials": (
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {
                    "url": "http://p:9090",
                    "secretRef": {"name": "s", "key": "k"},
                    "basicAuthSecretRef": {"name": "b"},
                },
            }
        },
        "spec.metrics.prometheus.basicAuthSecretRef",
        "remove the other",
    ),
    "authority without TLS": (
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {"url": "http://p:9090", "caSecretRef": {"name": "s"}},
            }
        },
        "spec.metrics.prometheus.caSecretRef",
        "write https://",
    ),
    "median above p90": ({"sla.ttft": {"p50": "2s", "p90": "1s"}}, "spec.sla.ttft.p50", "lower"),
    "SLA of nothing": ({"sla.itl.p90": "0ms"}, "spec.sla.itl.p90", "raise it"),
    "median of nothing": ({"sla.ttft.p50": "0s"}, "spec.sla.ttft.p50", "remove it"),
    "mean of nothing": ({"sla.ttft.mean": "0s"}, "spec.sla.ttft.mean", "remove it"),
    "hasty monitor": (
        {"metrics.podMonitor.interval": "0s"},
        "spec.metrics.podMonitor.interval",
        "raise it",
    ),
    "backend twice": (
        {"transfer.nixl.backends": ["UCX", "UCX"]},
        "spec.transfer.nixl.backends",
        "remove one",
    ),
    "our label on decode": (
        {"decode.workloadLabels": {"app.kubernetes.io/name": "x"}},
        "spec.decode.workloadLabels",
        "remove it",
    ),
    "our annotation on prefill": (
        {"prefill.workloadAnnotations": {"kvserving.io/render-hash": "x"}},
        "spec.prefill.workloadAnnotations",
        "remove it",
    ),
    "flag and value in one piece for decode": (
        {"decode.extraArgs": ["--x y"]},
        "spec.decode.extraArgs",
        "two elements",
    ),
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
