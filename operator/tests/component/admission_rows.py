"""Rows of the admission table: specs that must be let in, and the parts that rows share."""

from typing import Any

from tests.unit.api.builders import ABSENT

MANAGED = {"kvCache.remote": {"type": "Managed", "memoryPerInstance": "1Gi"}}
ON_CPU = {
    "decode.accelerator.resourceName": "",
    "prefill": {"accelerator": {"resourceName": ""}},
}
RANKED = {"engine.features": ["RankedRemote"]}
STORE = {"engine.features": ["ShardedStore", "RankedRemote", "AsyncLoading", "LoadOrRecompute"]}
PCP = {"model.attention": "MLA", "prefill.parallelism.prefillContext": 8}
APPLY = {"mode": "Apply", "decode": {"maxReplicas": 4}}
TIERED = MANAGED | RANKED | {"model.attention": "GQA"}
SGLANG = {"engine.type": "SGLang", "router.type": "SMG"}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the smallest": {},
    "prefill of defaults": {"prefill": {}},
    "PCP implies MLA": {"prefill.parallelism.prefillContext": 8},
    "PCP with a tier, attention implied": MANAGED
    | STORE
    | {"prefill.parallelism.prefillContext": 8},
    "PCP on vLLM 0.31": PCP | {"engine.version": "0.31.0"},
    "PCP on vLLM 1.0": PCP | {"engine.version": "1.0.0rc1"},
    "stock GQA tier on CPU": MANAGED | ON_CPU | {"model.attention": "GQA"},
    "stock PCP tier on CPU": MANAGED | ON_CPU | PCP,
    "stock MLA tier on GPUs": MANAGED | {"model.attention": "MLA"},
    "stock tier of decode on CPU": MANAGED
    | {"model.attention": "MHA", "decode.accelerator.resourceName": ""},
    "GQA tier with RankedRemote": TIERED | {"decode.parallelism.tensor": 4},
    "smallest instance": TIERED | {"kvCache.remote.memoryPerInstance": "64Mi"},
    "every mode of loading": MANAGED
    | STORE
    | {"model.attention": "MLA", "kvCache.remote.loading": {"mode": "Bypass", "minTokens": 9}},
    "Sync, stock": MANAGED | {"model.attention": "MLA", "kvCache.remote.loading.mode": "Sync"},
    "MLA split over pipeline, features without a tier": STORE | {"decode.parallelism.pipeline": 2},
    "decode spread as it likes beside a prefill with the store": MANAGED
    | STORE
    | PCP
    | {"decode.parallelism": {"data": 8, "pipeline": 2}},
    "external tier": STORE
    | {
        "model.attention": "MLA",
        "kvCache.remote": {
            "type": "External",
            "external": {"urlTemplate": "valkeys://cache-{ordinal}.example:6379"},
        },
    },
    "tier on volumes with TLS": TIERED
    | {
        "kvCache.remote.persistence.volumeClaim.size": "200Gi",
        "kvCache.remote.tls": {"mode": "CertManager", "issuerRef": {"name": "ca"}},
    },
    "SGLang pair with HOT": SGLANG
    | {
        "prefill.parallelism": {"tensor": 8, "data": 8},
        "decode.parallelism": {"tensor": 16, "data": 16},
        "engine.features": ["GraniKV"],
        "kvCache.hot": {"mode": "Auto", "percent": 5, "minPercent": 5, "maxPercent": 80},
    },
    "router of somebody else": {"router.type": "None"},
    "gateway": {
        "router.gateway": {
            "parentRefs": [{"name": "g", "namespace": "infra", "sectionName": "https"}],
            "hostnames": ["llm.example.org", "*.example.com"],
        }
    },
    "apply with free roles": {
        "prefill": {},
        "autoscaling": APPLY | {"prefill": {"maxReplicas": 2}, "ratio": {"max": 3}},
    },
    "apply with one role fixed": {"prefill.replicas": 3, "autoscaling": APPLY},
    "recommend with replicas": {"decode.replicas": 2, "autoscaling": APPLY | {"mode": "Recommend"}},
    "budget that just covers": PCP
    | {"decode.replicas": 2, "autoscaling": {"gpuBudget": 10}, "prefill.replicas": 1},
    "budget of engines on CPU": ON_CPU | {"autoscaling.gpuBudget": 1},
    "scaled to zero": {"prefill.replicas": 0, "decode.replicas": 0},
    "percentage": {"rollout.maxUnavailable": "25%"},
    "JSON argument with spaces": {
        "engine.extraArgs": ['--speculative-config={"method": "mtp", "n": 1}', "--flag", "a b"]
    },
    "podTemplate is not looked into": {
        "engine.podTemplate": {"spec": {"tolerations": [{"operator": "Exists"}], "x": {"y": [1]}}}
    },
    "volume sources": {
        "model.cache.persistentVolumeClaim": {"claimName": "hf"},
        "model.volume": {"path": "/models/glm", "nfs": {"server": "s", "path": "/"}},
        "engine.cacheVolume": {"hostPath": {"path": "/var/cache"}},
    },
    "RDMA devices by number and text": {"decode.rdma.resources": {"rdma/ib": 8, "rdma/eth": "1"}},
    "Kueue queue": {"decode.workloadLabels": {"kueue.x-k8s.io/queue-name": "llm"}},
    "Prometheus": {"metrics": {"source": "Prometheus", "prometheus": {"url": "https://p/x"}}},
    "policies": {
        "networkPolicy": {
            "clients": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
        }
    },
    "null is absent": {"prefill": None, "engine.extraArgs": None, "decode.replicas": None},
    "quoted Off": {"tuning.mode": "Off", "autoscaling.mode": "Off"},
    "empty environment value": {"engine.env": [{"name": "A", "value": ""}, {"name": "B"}]},
}

LEGAL_UPDATES: dict[str, dict[str, Any]] = {
    "ranks": {"prefill.parallelism.prefillContext": 4},
    "chunk": {"kvCache.chunkTokens": 512},
    "model": {"model.name": "org/other", "model.revision": "v2"},
    "digest": {"model.digest": f"sha256:{'0' * 64}"},
    "dtype": {"kvCache.dtype": "FP8"},
    "no prefill any more": {"prefill": ABSENT},
    "replicas": {"decode.replicas": 7},
    "suspend": {"suspend": True},
    "type written as it is": {"engine.type": "VLLM"},
    "no tier any more": {"kvCache": ABSENT},
    "image and version": {"engine.image": "engine:2", "engine.version": "0.34.0"},
    "speculation": {"engine.extraArgs": ["--speculative-config", '{"method": "mtp"}']},
    "features": {"engine.features": ["RankedRemote", "ShardedStore", "AsyncLoading"]},
    "a larger tier": {"kvCache.remote.memoryPerInstance": "2Gi"},
    "more instances": {"kvCache.remote.instancesPerRank": 2},
    "no router": {"router.type": "None"},
    "no policies": {"networkPolicy.mode": "Disabled"},
    "somebody else scales": {"autoscaling": APPLY},
    "nothing": {},
}

# what is changed in a legal object that has PCP and a tier, the field, a part of the remedy
ILLEGAL_UPDATES: dict[str, tuple[dict[str, Any], str, str]] = {
    "the engine": ({"engine.type": "SGLang"}, "spec.engine.type", "create a new KVServing"),
    "attention under PCP": ({"model.attention": "GQA"}, "spec.model.attention", "set it to MLA"),
    "the promise that the tier rests on": (
        {"engine.features": ABSENT},
        "spec.engine.features",
        "use an image that has it",
    ),
    "the tier's memory": (
        {"kvCache.remote.memoryPerInstance": ABSENT},
        "spec.kvCache.remote.memoryPerInstance",
        "set the memory",
    ),
    "staging": (
        {"kvCache.local.sizePerReplica": "0"},
        "spec.kvCache.local.sizePerReplica",
        "leave it out",
    ),
    "an old version": ({"engine.version": "0.30.0"}, "spec.engine.version", "newer image"),
    "replicas that are somebody's": (
        {"autoscaling": APPLY, "decode.replicas": 3},
        "spec.decode.replicas",
        "remove it",
    ),
    "limits of a role that is gone": (
        {"prefill": ABSENT, "autoscaling": APPLY | {"prefill": {"maxReplicas": 2}}},
        "spec.autoscaling.prefill",
        "add spec.prefill",
    ),
    "no model": ({"model.name": ABSENT}, "spec.model.name", "Required value"),
    "no time to start": ({"decode.startupTimeout": "0s"}, "startupTimeout", "raise it"),
    "a negative duration": ({"decode.drain.timeout": "-1s"}, "drain.timeout", "should match"),
}
