"""An edit of every field of the API, and exactly the children that it changes.

The table is complete by a test: a field without a row fails. Read a changed row as a promise to
users: what they edit restarts these objects and no others.
"""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart-pcp.yaml"


class Edit(NamedTuple):
    """Dotted changes of the base spec, and what they change or which field is refused."""

    changes: dict[str, Any]
    children: frozenset[str] = frozenset()
    refused: str = ""
    """A field of the message; the children stay as they are."""


def base(name: str = "x") -> dict[str, Any]:
    """The object that is edited: every role and a tier; its rollout is paused, so pods stay."""
    obj: dict[str, Any] = yaml.safe_load(_EXAMPLE.read_text())
    obj["metadata"] = {"name": name, "namespace": "default", "uid": "uid-1"}
    obj["spec"]["rollout"] = {"paused": True}
    return obj


def edited(changes: dict[str, Any], name: str = "x") -> dict[str, Any]:
    """The base object with some fields replaced."""
    obj = base(name)
    for dotted, value in changes.items():
        *parents, last = dotted.split(".")
        target = obj["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = copy.deepcopy(value)
    return obj


def _children(*labels: str) -> frozenset[str]:
    return frozenset(labels)


PREFILL, DECODE = "StatefulSet/x-prefill", "StatefulSet/x-decode"
ENGINES = _children(PREFILL, DECODE)
NOTHING = _children()
SPREAD = _children("ConfigMap/x-lmcache", "StatefulSet/x-prefill", "StatefulSet/x-valkey")
"""The ranks of the store, each with an instance of its own."""
STOCK = _children(
    "ConfigMap/x-lmcache",
    "PodDisruptionBudget/x-valkey",
    "StatefulSet/x-prefill",
    "StatefulSet/x-valkey",
)
"""What a stock image in the place of one with the store changes: one instance for all ranks."""

EDITS: dict[str, Edit] = {
    "suspend": Edit({"suspend": True}, NOTHING),
    "model.name": Edit({"model.name": "other"}, ENGINES),
    "model.servedNames": Edit({"model.servedNames": ["sim", "more"]}, ENGINES),
    "model.revision": Edit({"model.revision": "abc"}, ENGINES),
    "model.digest": Edit(
        {"model.digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
        _children(PREFILL),
    ),
    "model.attention": Edit({"model.attention": "Auto"}, NOTHING),
    "model.maxModelLen": Edit({"model.maxModelLen": 2048}, ENGINES),
    "model.huggingFace.tokenSecretRef.name": Edit(
        {"model.huggingFace.tokenSecretRef": {"name": "t", "key": "k"}}, ENGINES
    ),
    "model.huggingFace.tokenSecretRef.key": Edit(
        {"model.huggingFace.tokenSecretRef": {"name": "t", "key": "k"}}, ENGINES
    ),
    "model.huggingFace.offline": Edit({"model.huggingFace.offline": True}, ENGINES),
    "model.cache.mountPath": Edit(
        {"model.cache": {"mountPath": "/models/other", "emptyDir": {}}}, ENGINES
    ),
    "model.volume.path": Edit({"model.volume": {"path": "/w", "emptyDir": {}}}, ENGINES),
    "model.volume.readOnly": Edit(
        {"model.volume": {"path": "/w", "readOnly": False, "emptyDir": {}}}, ENGINES
    ),
    "engine.type": Edit({"engine.type": "SGLang"}, refused="spec.kvCache"),
    "engine.image": Edit({"engine.image": "example.org/engine:2"}, ENGINES),
    "engine.version": Edit({"engine.version": "0.33.0"}, _children(PREFILL)),
    "engine.features": Edit({"engine.features": []}, STOCK),
    "engine.extraArgs": Edit({"engine.extraArgs": ["--seed=1"]}, ENGINES),
    "engine.env": Edit({"engine.env": [{"name": "A", "value": "b"}]}, ENGINES),
    "engine.podTemplate": Edit(
        {"engine.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, ENGINES
    ),
    "engine.cacheVolume": Edit({"engine.cacheVolume": {"emptyDir": {"sizeLimit": "1Gi"}}}, ENGINES),
    "engine.imagePullSecrets": Edit(
        {"engine.imagePullSecrets": [{"name": "s"}]},
        _children(
            "Deployment/x-router",
            "StatefulSet/x-decode",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "prefill.replicas": Edit(
        {"prefill.replicas": 2}, _children("PodDisruptionBudget/x-prefill", "StatefulSet/x-prefill")
    ),
    "prefill.parallelism.prefillContext": Edit(
        {"prefill.parallelism.prefillContext": 2},
        SPREAD,
    ),
    "prefill.parallelism.tensor": Edit({"prefill.parallelism.tensor": 2}, SPREAD),
    # These two not beside the store: with a stock image in its place.
    "prefill.parallelism.pipeline": Edit(
        {
            "model.attention": "GQA",
            "prefill.parallelism": {"prefillContext": 1, "pipeline": 2},
            "engine.features": [],
        },
        STOCK,
    ),
    "prefill.parallelism.data": Edit(
        {
            "prefill.parallelism": {"prefillContext": 1, "tensor": 4, "data": 4},
            "engine.features": [],
        },
        STOCK | _children("NetworkPolicy/x-prefill"),
    ),
    "prefill.parallelism.decodeContext": Edit(
        {"prefill.parallelism.decodeContext": 2}, refused="spec.prefill.parallelism.decodeContext"
    ),
    "prefill.parallelism.expert": Edit({"prefill.parallelism.expert": True}, _children(PREFILL)),
    "prefill.nodesPerReplica": Edit(
        {"prefill.nodesPerReplica": 2}, refused="spec.prefill.nodesPerReplica"
    ),
    "prefill.image": Edit({"prefill.image": "example.org/engine:3"}, _children(PREFILL)),
    "prefill.extraArgs": Edit({"prefill.extraArgs": ["--seed=1"]}, _children(PREFILL)),
    "prefill.env": Edit({"prefill.env": [{"name": "A", "value": "b"}]}, _children(PREFILL)),
    "prefill.resources": Edit(
        {"prefill.resources": {"requests": {"cpu": "1"}}}, _children(PREFILL)
    ),
    "prefill.accelerator.resourceName": Edit(
        {"prefill.accelerator.resourceName": "example.org/gpu"}, _children(PREFILL)
    ),
    "prefill.rdma.resources": Edit(
        {"prefill.rdma.resources": {"rdma/ib": 1}},
        _children("NetworkPolicy/x-prefill", "StatefulSet/x-prefill"),
    ),
    "prefill.podTemplate": Edit(
        {"prefill.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, _children(PREFILL)
    ),
    "prefill.workloadLabels": Edit({"prefill.workloadLabels": {"team": "a"}}, _children(PREFILL)),
    "prefill.workloadAnnotations": Edit(
        {"prefill.workloadAnnotations": {"note": "a"}}, _children(PREFILL)
    ),
    "prefill.startupTimeout": Edit(
        {"prefill.startupTimeout": "31m"}, _children("Deployment/x-router", "StatefulSet/x-prefill")
    ),
    "prefill.drain.timeout": Edit({"prefill.drain.timeout": "130s"}, _children(PREFILL)),
    "prefill.drain.lease": Edit({"prefill.drain.lease": "55s"}, ENGINES),
    "decode.replicas": Edit(
        {"decode.replicas": 2}, _children("PodDisruptionBudget/x-decode", "StatefulSet/x-decode")
    ),
    "decode.parallelism.prefillContext": Edit(
        {"decode.parallelism.prefillContext": 2}, refused="spec.decode.parallelism.prefillContext"
    ),
    "decode.parallelism.tensor": Edit({"decode.parallelism.tensor": 2}, _children(DECODE)),
    "decode.parallelism.pipeline": Edit({"decode.parallelism.pipeline": 2}, _children(DECODE)),
    "decode.parallelism.data": Edit({"decode.parallelism.data": 2}, _children(DECODE)),
    "decode.parallelism.decodeContext": Edit(
        {"decode.parallelism.decodeContext": 2}, refused="spec.decode.parallelism.decodeContext"
    ),
    "decode.parallelism.expert": Edit({"decode.parallelism.expert": True}, _children(DECODE)),
    "decode.nodesPerReplica": Edit(
        {"decode.nodesPerReplica": 2}, refused="spec.decode.nodesPerReplica"
    ),
    "decode.image": Edit({"decode.image": "example.org/engine:3"}, _children(DECODE)),
    "decode.extraArgs": Edit({"decode.extraArgs": ["--seed=1"]}, _children(DECODE)),
    "decode.env": Edit({"decode.env": [{"name": "A", "value": "b"}]}, _children(DECODE)),
    "decode.resources": Edit({"decode.resources": {"requests": {"cpu": "1"}}}, _children(DECODE)),
    "decode.accelerator.resourceName": Edit(
        {"decode.accelerator.resourceName": "example.org/gpu"}, _children(DECODE)
    ),
    "decode.rdma.resources": Edit({"decode.rdma.resources": {"rdma/ib": 1}}, _children(DECODE)),
    "decode.podTemplate": Edit(
        {"decode.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}, _children(DECODE)
    ),
    "decode.workloadLabels": Edit({"decode.workloadLabels": {"team": "a"}}, _children(DECODE)),
    "decode.workloadAnnotations": Edit(
        {"decode.workloadAnnotations": {"note": "a"}}, _children(DECODE)
    ),
    "decode.startupTimeout": Edit(
        {"decode.startupTimeout": "31m"}, _children("Deployment/x-router", "StatefulSet/x-decode")
    ),
    "decode.drain.timeout": Edit({"decode.drain.timeout": "130s"}, _children(DECODE)),
    "decode.drain.lease": Edit({"decode.drain.lease": "55s"}, _children(DECODE)),
    "kvCache.dtype": Edit({"kvCache.dtype": "BF16"}, ENGINES),
    "kvCache.chunkTokens": Edit(
        {"kvCache.chunkTokens": 128}, _children("ConfigMap/x-lmcache", "StatefulSet/x-prefill")
    ),
    "kvCache.local.sizePerReplica": Edit(
        {"kvCache.local.sizePerReplica": "128Mi"},
        _children("ConfigMap/x-lmcache", "StatefulSet/x-prefill"),
    ),
    "kvCache.remote.type": Edit(
        {"kvCache.remote": {"type": "None"}},
        _children(
            "ConfigMap/x-lmcache",
            "PodDisruptionBudget/x-valkey",
            "ConfigMap/x-valkey",
            "NetworkPolicy/x-valkey",
            "Service/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.instancesPerRank": Edit(
        {"kvCache.remote.instancesPerRank": 2},
        _children("StatefulSet/x-prefill", "StatefulSet/x-valkey"),
    ),
    "kvCache.remote.memoryPerInstance": Edit(
        {"kvCache.remote.memoryPerInstance": "256Mi"},
        _children("ConfigMap/x-valkey", "StatefulSet/x-valkey"),
    ),
    "kvCache.remote.image": Edit(
        {"kvCache.remote.image": "example.org/valkey:2"}, _children("StatefulSet/x-valkey")
    ),
    "kvCache.remote.resources": Edit(
        {"kvCache.remote.resources": {"requests": {"cpu": "1"}}}, _children("StatefulSet/x-valkey")
    ),
    "kvCache.remote.podTemplate": Edit(
        {"kvCache.remote.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
        _children("StatefulSet/x-valkey"),
    ),
    "kvCache.remote.tls.mode": Edit(
        {"kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s"}}},
        _children(
            "ConfigMap/x-lmcache",
            "ConfigMap/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.tls.issuerRef.name": Edit(
        {"kvCache.remote.tls": {"mode": "CertManager", "issuerRef": {"name": "i"}}},
        _children(
            "Certificate/x-valkey-tls",
            "ConfigMap/x-lmcache",
            "ConfigMap/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.tls.issuerRef.kind": Edit(
        {
            "kvCache.remote.tls": {
                "mode": "CertManager",
                "issuerRef": {"name": "i", "kind": "ClusterIssuer"},
            }
        },
        _children(
            "Certificate/x-valkey-tls",
            "ConfigMap/x-lmcache",
            "ConfigMap/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.tls.issuerRef.group": Edit(
        {
            "kvCache.remote.tls": {
                "mode": "CertManager",
                "issuerRef": {"name": "i", "group": "example.org"},
            }
        },
        _children(
            "Certificate/x-valkey-tls",
            "ConfigMap/x-lmcache",
            "ConfigMap/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.tls.secretRef.name": Edit(
        {"kvCache.remote.tls": {"mode": "Secret", "secretRef": {"name": "s2"}}},
        _children(
            "ConfigMap/x-lmcache",
            "ConfigMap/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.persistence.volumeClaim.size": Edit(
        {"kvCache.remote.persistence": {"volumeClaim": {"size": "1Gi"}}},
        _children("ConfigMap/x-valkey", "StatefulSet/x-valkey"),
    ),
    "kvCache.remote.persistence.volumeClaim.storageClassName": Edit(
        {
            "kvCache.remote.persistence": {
                "volumeClaim": {"size": "1Gi", "storageClassName": "fast"}
            }
        },
        _children("ConfigMap/x-valkey", "StatefulSet/x-valkey"),
    ),
    "kvCache.remote.external.urlTemplate": Edit(
        {
            "kvCache.remote": {
                "type": "External",
                "external": {"urlTemplate": "redis://v.example.org:6379"},
            }
        },
        _children(
            "ConfigMap/x-lmcache",
            "PodDisruptionBudget/x-valkey",
            "ConfigMap/x-valkey",
            "NetworkPolicy/x-valkey",
            "Service/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.external.authSecretRef.name": Edit(
        {
            "kvCache.remote": {
                "type": "External",
                "external": {
                    "urlTemplate": "redis://v.example.org:6379",
                    "authSecretRef": {"name": "a"},
                },
            }
        },
        _children(
            "ConfigMap/x-lmcache",
            "PodDisruptionBudget/x-valkey",
            "ConfigMap/x-valkey",
            "NetworkPolicy/x-valkey",
            "Service/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.external.caSecretRef.name": Edit(
        {
            "kvCache.remote": {
                "type": "External",
                "external": {
                    "urlTemplate": "rediss://v.example.org:6379",
                    "caSecretRef": {"name": "a"},
                },
            }
        },
        _children(
            "ConfigMap/x-lmcache",
            "PodDisruptionBudget/x-valkey",
            "ConfigMap/x-valkey",
            "NetworkPolicy/x-valkey",
            "Service/x-valkey",
            "StatefulSet/x-prefill",
            "StatefulSet/x-valkey",
        ),
    ),
    "kvCache.remote.loading.mode": Edit(
        {"kvCache.remote.loading.mode": "Sync"},
        _children(PREFILL),
    ),
    "kvCache.remote.loading.minTokens": Edit(
        {"kvCache.remote.loading.minTokens": 512},
        _children(PREFILL),
    ),
    "kvCache.hot.mode": Edit(
        {"kvCache.hot.mode": "Fixed", "engine.features": ["GraniKV"]},
        refused="spec.engine.features",
    ),
    "kvCache.hot.percent": Edit({"kvCache.hot.percent": 30}, NOTHING),
    "kvCache.hot.minPercent": Edit({"kvCache.hot.minPercent": 6}, NOTHING),
    "kvCache.hot.maxPercent": Edit({"kvCache.hot.maxPercent": 70}, NOTHING),
    "transfer.connector": Edit({"transfer.connector": "NIXL"}, NOTHING),
    "transfer.nixl.backends": Edit({"transfer.nixl.backends": ["UCX", "GDS"]}, ENGINES),
    "transfer.nixl.numThreads": Edit({"transfer.nixl.numThreads": 5}, ENGINES),
    "transfer.nixl.bufferDevice": Edit({"transfer.nixl.bufferDevice": "CUDA"}, ENGINES),
    "transfer.nixl.extraConfig": Edit({"transfer.nixl.extraConfig": {"a": "b"}}, ENGINES),
    "transfer.loadFailurePolicy": Edit({"transfer.loadFailurePolicy": "Fail"}, _children(DECODE)),
    "transfer.peerRestart": Edit(
        {"transfer.peerRestart": "RestartDecode"}, refused="spec.transfer.peerRestart"
    ),
    "router.type": Edit(
        {"router.type": "None"},
        _children(
            "Deployment/x-router",
            "NetworkPolicy/x-decode",
            "NetworkPolicy/x-prefill",
            "NetworkPolicy/x-router",
            "Role/x-router",
            "RoleBinding/x-router",
            "Service/x",
            "Service/x-metrics",
            "ServiceAccount/x-router",
        ),
    ),
    "router.replicas": Edit(
        {"router.replicas": 3}, _children("Deployment/x-router", "PodDisruptionBudget/x-router")
    ),
    "router.policy": Edit({"router.policy": "Random"}, _children("Deployment/x-router")),
    "router.prefillPolicy": Edit(
        {"router.prefillPolicy": "Random"}, _children("Deployment/x-router")
    ),
    "router.decodePolicy": Edit(
        {"router.decodePolicy": "Random"}, _children("Deployment/x-router")
    ),
    "router.image": Edit(
        {"router.image": "example.org/router:2"}, _children("Deployment/x-router")
    ),
    "router.extraArgs": Edit(
        {"router.extraArgs": ["--log-level=debug"]}, _children("Deployment/x-router")
    ),
    "router.env": Edit(
        {"router.env": [{"name": "A", "value": "b"}]}, _children("Deployment/x-router")
    ),
    "router.resources": Edit(
        {"router.resources": {"requests": {"cpu": "1"}}}, _children("Deployment/x-router")
    ),
    "router.podTemplate": Edit(
        {"router.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
        _children("Deployment/x-router"),
    ),
    "router.service.type": Edit({"router.service.type": "NodePort"}, _children("Service/x")),
    "router.service.annotations": Edit(
        {"router.service.annotations": {"a": "b"}}, _children("Service/x")
    ),
    "router.gateway.parentRefs": Edit(
        {"router.gateway": {"parentRefs": [{"name": "g"}]}}, _children("HTTPRoute/x")
    ),
    "router.gateway.hostnames": Edit(
        {"router.gateway": {"parentRefs": [{"name": "g"}], "hostnames": ["a.example.org"]}},
        _children("HTTPRoute/x"),
    ),
    "rollout.strategy": Edit({"rollout.strategy": "BlueGreen"}, refused="spec.rollout.strategy"),
    "rollout.paused": Edit({"rollout.paused": False}, NOTHING),
    "rollout.maxUnavailable": Edit({"rollout.maxUnavailable": "50%"}, NOTHING),
    "sla.ttft.p50": Edit({"sla.ttft.p50": "1s"}, NOTHING),
    "sla.ttft.p90": Edit({"sla.ttft.p90": "1s"}, NOTHING),
    "sla.ttft.mean": Edit({"sla.ttft.mean": "1s"}, NOTHING),
    "sla.itl.p50": Edit({"sla.itl.p50": "50ms"}, NOTHING),
    "sla.itl.p90": Edit({"sla.itl.p90": "50ms"}, NOTHING),
    "sla.itl.mean": Edit({"sla.itl.mean": "50ms"}, NOTHING),
    "autoscaling.mode": Edit(
        {"autoscaling": {"mode": "Recommend", "decode": {"maxReplicas": 3}}},
        refused="spec.autoscaling.mode",
    ),
    "autoscaling.prefill.minReplicas": Edit(
        {"autoscaling.prefill": {"minReplicas": 1, "maxReplicas": 2}}, NOTHING
    ),
    "autoscaling.prefill.maxReplicas": Edit(
        {"autoscaling.prefill": {"minReplicas": 1, "maxReplicas": 3}}, NOTHING
    ),
    "autoscaling.decode.minReplicas": Edit(
        {"autoscaling.decode": {"minReplicas": 1, "maxReplicas": 2}}, NOTHING
    ),
    "autoscaling.decode.maxReplicas": Edit(
        {"autoscaling.decode": {"minReplicas": 1, "maxReplicas": 3}}, NOTHING
    ),
    "autoscaling.gpuBudget": Edit({"autoscaling.gpuBudget": 64}, NOTHING),
    "autoscaling.ratio.min": Edit({"autoscaling.ratio": {"min": 1, "max": 4}}, NOTHING),
    "autoscaling.ratio.max": Edit({"autoscaling.ratio": {"min": 1, "max": 5}}, NOTHING),
    "tuning.mode": Edit({"tuning.mode": "Recommend"}, NOTHING),
    "tuning.interval": Edit({"tuning.interval": "90s"}, NOTHING),
    "metrics.source": Edit(
        {"metrics": {"source": "Prometheus", "prometheus": {"url": "http://p:9090"}}},
        NOTHING,
    ),
    "metrics.prometheus.url": Edit(
        {"metrics": {"source": "Prometheus", "prometheus": {"url": "http://p:9090"}}},
        NOTHING,
    ),
    "metrics.prometheus.secretRef.name": Edit(
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {"url": "http://p:9090", "secretRef": {"name": "s", "key": "k"}},
            }
        },
        NOTHING,
    ),
    "metrics.prometheus.secretRef.key": Edit(
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {"url": "http://p:9090", "secretRef": {"name": "s", "key": "k"}},
            }
        },
        NOTHING,
    ),
    "metrics.prometheus.basicAuthSecretRef.name": Edit(
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {"url": "http://p:9090", "basicAuthSecretRef": {"name": "s"}},
            }
        },
        NOTHING,
    ),
    "metrics.prometheus.caSecretRef.name": Edit(
        {
            "metrics": {
                "source": "Prometheus",
                "prometheus": {"url": "https://p:9090", "caSecretRef": {"name": "s"}},
            }
        },
        NOTHING,
    ),
    "metrics.podMonitor.labels": Edit(
        {"metrics.podMonitor": {"labels": {"a": "b"}}}, _children("PodMonitor/x")
    ),
    "metrics.podMonitor.interval": Edit(
        {"metrics.podMonitor": {"interval": "20s"}}, _children("PodMonitor/x")
    ),
    "networkPolicy.mode": Edit(
        {"networkPolicy.mode": "Disabled"},
        _children(
            "NetworkPolicy/x-decode",
            "NetworkPolicy/x-prefill",
            "NetworkPolicy/x-router",
            "NetworkPolicy/x-valkey",
        ),
    ),
    "networkPolicy.clients": Edit(
        {"networkPolicy.clients": [{"podSelector": {"matchLabels": {"a": "b"}}}]},
        _children("NetworkPolicy/x-router"),
    ),
    "networkPolicy.metricsFrom": Edit(
        {"networkPolicy.metricsFrom": [{"podSelector": {"matchLabels": {"a": "b"}}}]},
        _children("NetworkPolicy/x-decode", "NetworkPolicy/x-prefill", "NetworkPolicy/x-router"),
    ),
}
