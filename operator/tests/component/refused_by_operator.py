"""Rows of the admission table: specs that the API server lets in and the operator refuses."""

from typing import Any

from tests.component.admission_rows import APPLY, MANAGED, ON_CPU, PCP, SGLANG

_ARGS = "spec.engine.extraArgs[0]"
_CPU_TIER = MANAGED | ON_CPU | {"model.attention": "MLA"}


def _engine(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "engine", **container}]}}


def _flags(*arguments: str) -> dict[str, Any]:
    return {"engine.extraArgs": list(arguments)}


# changes, the field, a part of the remedy
FLAGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a port": (_flags("--port", "9000"), _ARGS, "owns the ports"),
    "a port by prefix": (_flags("--por=9000"), _ARGS, "owns the ports"),
    "a host": (_flags("--host=::"), _ARGS, "owns the ports"),
    "a socket": (_flags("--uds", "/tmp/x"), _ARGS, "owns the ports"),
    "ranks by prefix": (_flags("--tensor-par", "4"), _ARGS, "set parallelism"),
    "ranks, short": (_flags("-tp", "4"), _ARGS, "set parallelism"),
    "ranks, short and joined": (_flags("-tp=4"), _ARGS, "set parallelism"),
    "ranks with underscores": (_flags("--tensor_parallel_size", "4"), _ARGS, "set parallelism"),
    "context ranks": (_flags("-pcp", "2"), _ARGS, "set parallelism"),
    "decode context ranks": (_flags("-dcp", "2"), _ARGS, "set parallelism"),
    "data ranks": (_flags("-dpl=2"), _ARGS, "set parallelism"),
    "expert ranks, negated": (_flags("--no-enable-expert-parallel"), _ARGS, "set parallelism"),
    "nodes": (_flags("-n2"), _ARGS, "nodesPerReplica"),
    "a file of flags": (_flags("--config", "x.yaml"), _ARGS, "write the flags"),
    "the wiring": (_flags('--kv-transfer-config={"kv_role": "x"}'), _ARGS, "spec.kvCache"),
    "a part of the wiring": (
        _flags("--kv-transfer-config.kv_role", "kv_both"),
        _ARGS,
        "spec.kvCache",
    ),
    "a list in the wiring": (
        _flags("--kv_transfer_config.kv_connector_extra_config.backends+", "X"),
        _ARGS,
        "spec.kvCache",
    ),
    "events": (_flags("--kv-events-config", "{}"), _ARGS, "remove it"),
    "the model": (_flags("--model=x"), _ARGS, "spec.model.name"),
    "the served name": (_flags("--served-model-name", "x"), _ARGS, "spec.model.servedNames"),
    "the revision": (_flags("--revision", "x"), _ARGS, "spec.model.revision"),
    "the length": (_flags("--max-model-len", "1"), _ARGS, "spec.model.maxModelLen"),
    "the KV dtype": (_flags("--kv-cache-dtype", "fp8"), _ARGS, "spec.kvCache.dtype"),
    "a key": (_flags("--api-key", "x"), _ARGS, "gateway"),
    "TLS": (_flags("--ssl-keyfile", "x"), _ARGS, "gateway"),
    "the end": (_flags("--shutdown-timeout=1"), _ARGS, "drain.timeout"),
    "the hybrid manager": (_flags("--no-disable-hybrid-kv-cache-manager"), _ARGS, "remove it"),
    "help": (_flags("-h"), _ARGS, "remove it"),
    "the end of flags": (_flags("--enforce-eager", "--"), "spec.engine.extraArgs[1]", "remove it"),
    "a value first": (_flags("8"), _ARGS, "start with a flag"),
    "a role's block size": (
        {"decode.extraArgs": ["--block-size", "32"]},
        "spec.decode.extraArgs[0]",
        "move it to spec.engine.extraArgs",
    ),
    "a role's speculation": (
        {"prefill": {"extraArgs": ["--enforce-eager", "-sc={}"]}},
        "spec.prefill.extraArgs[1]",
        "move it to spec.engine.extraArgs",
    ),
    "a role's port": ({"decode.extraArgs": ["--port=1"]}, "spec.decode.extraArgs[0]", "owns"),
    "a router's port": ({"router.extraArgs": ["--port", "1"]}, "spec.router.extraArgs[0]", "owns"),
    "a router's workers": (
        {"router.extraArgs": ["--worker-urls", "http://x"]},
        "spec.router.extraArgs[0]",
        "finds the engines",
    ),
    "LoRA with a tier": (_CPU_TIER | _flags("--enable-lora"), _ARGS, "adapter"),
    "LoRA with context parallel": (PCP | _flags("--enable-lora"), _ARGS, "prefillContext to 1"),
    "dual batches with context parallel": (PCP | _flags("--enable-dbo"), _ARGS, "prefillContext"),
    "pictures with context parallel": (
        PCP | {"prefill.extraArgs": ["--limit-mm-per-prompt", "{}"]},
        "spec.prefill.extraArgs[0]",
        "prefillContext to 1",
    ),
    "blocks that do not fit chunks": (
        _CPU_TIER | _flags("--block-size", "96"),
        "spec.kvCache.chunkTokens",
        "multiple",
    ),
}

PODS: dict[str, tuple[dict[str, Any], str, str]] = {
    "the hash seed": (
        {"engine.env": [{"name": "PYTHONHASHSEED", "value": "1"}]},
        "spec.engine.env[0]",
        "must be equal",
    ),
    "the side channel": (
        {"decode.env": [{"name": "A"}, {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "1"}]},
        "spec.decode.env[1]",
        "spec.transfer",
    ),
    "the cache file": (
        {"prefill": {"env": [{"name": "LMCACHE_CONFIG_FILE", "value": "/x"}]}},
        "spec.prefill.env[0]",
        "spec.kvCache",
    ),
    "expandable segments": (
        {"engine.env": [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}]},
        "spec.engine.env[0]",
        "remove expandable_segments",
    ),
    "an owned variable in a podTemplate": (
        {"engine.podTemplate": _engine(env=[{"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/x"}])},
        "spec.engine.podTemplate.spec.containers[0].env[0]",
        "remove it",
    ),
    "arguments in a podTemplate": (
        {"decode.podTemplate": _engine(args=["--port", "1"])},
        "spec.decode.podTemplate.spec.containers[0].args",
        "extraArgs",
    ),
    "an image in a podTemplate": (
        {"decode.podTemplate": _engine(image="x")},
        "spec.decode.podTemplate.spec.containers[0].image",
        "the image field",
    ),
    "ports in a podTemplate": (
        {"decode.podTemplate": _engine(ports=[{"containerPort": 1}])},
        "spec.decode.podTemplate.spec.containers[0].ports",
        "owns the ports",
    ),
    "a probe in a podTemplate": (
        {"decode.podTemplate": _engine(readinessProbe={})},
        "spec.decode.podTemplate.spec.containers[0].readinessProbe",
        "remove it",
    ),
    "the agent in a podTemplate": (
        {
            "decode.podTemplate": {
                "spec": {"initContainers": [{"name": "agent", "command": ["sh"]}]}
            }
        },
        "spec.decode.podTemplate.spec.initContainers[0].command",
        "remove it",
    ),
    "the host's network": (
        {"decode.podTemplate": {"spec": {"hostNetwork": True}}},
        "spec.decode.podTemplate.spec.hostNetwork",
        "networkPolicy.mode to Disabled",
    ),
    "our label in a podTemplate": (
        {"router.podTemplate": {"metadata": {"labels": {"kvserving.io/role": "x"}}}},
        "spec.router.podTemplate.metadata.labels.kvserving.io/role",
        "remove it",
    ),
    "a patch directive": (
        {"decode.podTemplate": {"spec": {"$patch": "replace"}}},
        "spec.decode.podTemplate.spec.$patch",
        "PodTemplateSpec",
    ),
    "a list where an object belongs": (
        {"decode.podTemplate": {"spec": []}},
        "spec.decode.podTemplate.spec",
        "PodTemplateSpec",
    ),
    "two volume sources": (
        {"model.cache": {"emptyDir": {}, "hostPath": {"path": "/x"}}},
        "spec.model.cache",
        "leave one",
    ),
    "weights without a source": (
        {"model.volume": {"path": "/models/x"}},
        "spec.model.volume",
        "add one",
    ),
    "weights over the operator's folder": (
        {"model.volume": {"path": "/dev/shm", "emptyDir": {}}},
        "spec.model.volume.path",
        "choose another path",
    ),
    "no quantity": (
        {"decode.resources": {"limits": {"cpu": "many"}}},
        "spec.decode.resources.limits.cpu",
        "write a number",
    ),
    "accelerators counted twice": (
        {"decode.resources": {"limits": {"nvidia.com/gpu": 1}}},
        "spec.decode.resources.limits.nvidia.com/gpu",
        "follows from parallelism",
    ),
    "the tier's memory twice": (
        _CPU_TIER | {"kvCache.remote.resources": {"limits": {"memory": "1Gi"}}},
        "spec.kvCache.remote.resources.limits.memory",
        "memoryPerInstance",
    ),
    "an illegal key": (
        {"decode.workloadLabels": {"a b": "c"}},
        "spec.decode.workloadLabels",
        "write letters",
    ),
    "a lease too short to renew": (
        {"prefill": {"drain": {"lease": "1s"}}},
        "spec.prefill.drain.lease",
        "10s or more",
    ),
    "a setting of NIXL with a field": (
        {"transfer.nixl.extraConfig": {"backends": ["UCX"]}, "prefill": {}},
        "spec.transfer.nixl.extraConfig.backends",
        "set",
    ),
    "a stock tier over pipeline stages": (
        MANAGED | {"model.attention": "MLA", "decode.parallelism": {"pipeline": 2}},
        "spec.decode.parallelism.pipeline",
        "set it to 1",
    ),
    "a stock tier over decode context ranks": (
        MANAGED
        | {"model.attention": "MLA", "decode.parallelism": {"tensor": 2, "decodeContext": 2}},
        "spec.decode.parallelism.decodeContext",
        "set it to 1",
    ),
    "ranks that do not divide": (
        {"decode.parallelism": {"tensor": 4, "decodeContext": 3}},
        "spec.decode.parallelism.decodeContext",
        "divisor",
    ),
}

HOT = {"engine.features": ["GraniKV"], "kvCache.hot.mode": "Fixed"}

SGLANG_ENGINE: dict[str, tuple[dict[str, Any], str, str]] = {
    f"SGLang: {row}": (SGLANG | changes, field, remedy)
    for row, (changes, field, remedy) in {
        "ranks by prefix": (_flags("--tp", "4"), _ARGS, "set parallelism"),
        "ranks by another name": (
            _flags("--tensor-parallel-size=4"),
            _ARGS,
            "set parallelism",
        ),
        "attention ranks": (_flags("--enable-dp-att"), _ARGS, "set parallelism"),
        "the role": (_flags("--disaggregation-mode", "decode"), _ARGS, "spec.transfer"),
        "a port": (_flags("--port", "1"), _ARGS, "owns the ports"),
        "a file of flags": (_flags("--config", "x.yaml"), _ARGS, "write the flags"),
        "the model": (_flags("--model", "x"), _ARGS, "spec.model.name"),
        "a tier of its own": (_flags("--enable-lmcache"), _ARGS, "remove it"),
        "a role's page size": (
            {"decode.extraArgs": ["--page-s=64"]},
            "spec.decode.extraArgs[0]",
            "move it to spec.engine.extraArgs",
        ),
        "a variable of the transfer": (
            {"engine.env": [{"name": "SGLANG_DISAGGREGATION_NIXL_BACKEND", "value": "X"}]},
            "spec.engine.env[0]",
            "spec.transfer.nixl",
        ),
        "HOT over several ranks": (
            HOT | {"decode.parallelism": {"tensor": 2}},
            "spec.decode.parallelism.tensor",
            "raise spec.decode.replicas",
        ),
        "HOT behind prefill": (HOT | {"prefill": {}}, "spec.prefill", "remove it"),
        "HOT with latent attention": (
            HOT | {"model.attention": "MLA"},
            "spec.model.attention",
            "GQA or MHA",
        ),
        "HOT in FP8": (HOT | {"kvCache.dtype": "FP8"}, "spec.kvCache.dtype", "Auto or BF16"),
    }.items()
}

# what is in the API and not built yet; a line goes with the issue that builds it
NOT_YET: dict[str, tuple[dict[str, Any], str, str]] = {
    "GraniKV in vLLM": ({"engine.features": ["GraniKV"]}, "spec.engine.features", "remove GraniKV"),
    "prefill on nodes": (
        {"prefill.nodesPerReplica": 2},
        "spec.prefill.nodesPerReplica",
        "set it to 1",
    ),
    "decode on nodes": ({"decode.nodesPerReplica": 2}, "spec.decode.nodesPerReplica", "to 1"),
    "HOT in vLLM": (
        {"kvCache.hot.mode": "Fixed", "engine.features": ["GraniKV"]},
        "spec.kvCache.hot.mode",
        "set it to Off",
    ),
    "restarts of peers": (
        {"transfer.peerRestart": "RestartDecode"},
        "spec.transfer.peerRestart",
        "set it to Observe",
    ),
    "BlueGreen": (
        {"rollout.strategy": "BlueGreen"},
        "spec.rollout.strategy",
        "set it to InPlace",
    ),
    "the autoscaler": ({"autoscaling": APPLY}, "spec.autoscaling.mode", "set it to Off"),
}

BY_OPERATOR = FLAGS | PODS | SGLANG_ENGINE | NOT_YET
