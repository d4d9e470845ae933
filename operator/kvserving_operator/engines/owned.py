"""What of vLLM's command line and environment belongs to the operator, and to whom it refers. Pure.

One table for every door: extraArgs and env of the engine and of the roles, and podTemplates.
Flag names were read from the parsers of vLLM 0.32.0 and 0.33.0.
"""

from typing import Final

from kvserving_operator.engines.flags import FlagTable, flag
from kvserving_operator.engines.remedies import NODES, PARALLELISM, PORTS, TLS

_WIRING: Final = "set spec.kvCache and spec.transfer"


OWNED_FLAGS: Final = FlagTable(
    (
        flag("write the flags themselves", "--config"),
        flag("remove it: the engine would print its help and end", "--help", "-h"),
        flag("set spec.model.name or spec.model.volume.path", "--model", "--model-tag"),
        flag("set spec.model.servedNames", "--served-model-name"),
        flag("set spec.model.revision", "--revision"),
        flag("set spec.model.maxModelLen", "--max-model-len"),
        flag("set spec.model.huggingFace.tokenSecretRef", "--hf-token"),
        flag("set spec.kvCache.dtype", "--kv-cache-dtype"),
        flag(_WIRING, "--kv-transfer-config"),
        flag("remove it: nothing here listens to KV events yet", "--kv-events-config"),
        flag(
            "set spec.kvCache.local.sizePerReplica",
            "--kv-offloading-size",
            "--kv-offloading-backend",
        ),
        flag(
            "remove it: it follows from the connectors, and the roles must agree on it",
            "--disable-hybrid-kv-cache-manager",
        ),
        flag(PORTS, "--host", "--port", "--uds", "--grpc", "--grpc-port", "--headless"),
        flag("set drain.timeout of the role", "--shutdown-timeout"),
        flag(
            TLS,
            "--api-key",
            "--ssl-keyfile",
            "--ssl-certfile",
            "--ssl-ca-certs",
            "--enable-ssl-refresh",
            "--ssl-cert-reqs",
            "--ssl-ciphers",
        ),
        flag("remove it: the operator measures by the metrics", "--disable-log-stats"),
        flag(PARALLELISM, "--tensor-parallel-size", "-tp"),
        flag(PARALLELISM, "--pipeline-parallel-size", "-pp"),
        flag(PARALLELISM, "--prefill-context-parallel-size", "-pcp"),
        flag(PARALLELISM, "--decode-context-parallel-size", "-dcp"),
        flag(PARALLELISM, "--enable-expert-parallel", "-ep"),
        flag(
            PARALLELISM,
            "--data-parallel-size",
            "-dp",
            "--data-parallel-rank",
            "-dpn",
            "--data-parallel-start-rank",
            "-dpr",
            "--data-parallel-size-local",
            "-dpl",
            "--data-parallel-address",
            "-dpa",
            "--data-parallel-rpc-port",
            "-dpp",
            "--data-parallel-backend",
            "-dpb",
            "--data-parallel-hybrid-lb",
            "-dph",
            "--data-parallel-external-lb",
            "-dpe",
            "--data-parallel-multi-port-external-lb",
            "-dpm",
            "--data-parallel-supervisor-port",
        ),
        flag(NODES, "--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port"),
    ),
    others=frozenset({"-dc"}),
)

ENGINE_ONLY_FLAGS: Final = FlagTable(
    tuple(
        flag("move it to spec.engine.extraArgs: both roles must run with the same value", *names)
        for names in (
            ("--block-size",),
            ("--dtype",),
            ("--quantization", "-q"),
            ("--quantization-config",),
            ("--kv-cache-dtype-skip-layers",),
            ("--speculative-config", "-sc"),
            ("--spec-method",),
            ("--spec-model",),
            ("--spec-tokens",),
            ("--tokenizer",),
            ("--tokenizer-mode",),
            ("--tokenizer-revision",),
            ("--code-revision",),
            ("--hf-overrides",),
            ("--hf-config-path",),
            ("--config-format",),
            ("--model-impl",),
            ("--trust-remote-code",),
            ("--prefix-caching-hash-algo",),
            ("--cp-kv-cache-interleave-size",),
            ("--dcp-kv-cache-interleave-size",),
            ("--mamba-block-size",),
            ("--mamba-cache-dtype",),
            ("--mamba-ssm-cache-dtype",),
            ("--mamba-cache-mode",),
        )
    ),
    others=frozenset({"--config", "--kv-cache-dtype", "--model"}),
)
"""Flags that shape the KV or the token ids: different values in the roles would be wrong answers,
or a NIXL handshake that fails on every request."""

LORA_FLAGS: Final = FlagTable(
    (
        flag(
            "remove it, or remove kvCache.local and kvCache.remote: cache keys do not carry the "
            "adapter yet, so one adapter would read KV of another",
            "--enable-lora",
            "--lora-modules",
            "--max-loras",
            "--max-lora-rank",
            "--lora-dtype",
            "--max-cpu-loras",
            "--fully-sharded-loras",
            "--lora-target-modules",
            "--default-mm-loras",
            "--enable-tower-connector-lora",
            "--specialize-active-lora",
            "--enable-mixed-moe-lora-format",
            "--enable-moe-shared-loras",
            "--max-lora-cls-labels",
        ),
    )
)

NO_CONTEXT_PARALLEL_FLAGS: Final = FlagTable(
    (
        flag(
            "remove it, or set parallelism.prefillContext to 1: vLLM has no dual-batch overlap, "
            "LoRA or multimodal input with context parallel prefill",
            "--enable-dbo",
            "--ubatch-size",
            "--enable-lora",
            "--lora-modules",
            "--limit-mm-per-prompt",
            "--mm-processor-kwargs",
            "--enable-mm-embeds",
            "--mm-encoder-only",
            "--enable-return-routed-experts",
        ),
    )
)

OWNED_ENV: Final = {
    "PYTHONHASHSEED": "remove it: cache keys of all engines must be equal",
    "PROMETHEUS_MULTIPROC_DIR": "remove it: the metrics are read from there",
    "VLLM_API_KEY": TLS,
    "VLLM_PORT": PORTS,
    "VLLM_HOST_IP": "remove it: the engine takes the pod's address",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "remove it: it must outlast the router's idle connections",
    "UCX_TCP_PORT_RANGE": PORTS,
    "HF_HOME": "set spec.model.cache.mountPath",
    "HF_TOKEN": "set spec.model.huggingFace.tokenSecretRef",
    "HF_HUB_OFFLINE": "set spec.model.huggingFace.offline",
}
"""Variable to remedy."""

OWNED_ENV_PREFIXES: Final = {
    "VLLM_NIXL_": "set spec.transfer",
    "VLLM_DP_": PARALLELISM,
    "LMCACHE_": "set spec.kvCache: the environment would win over the operator's LMCache file",
    "GRANIKV_": "set spec.kvCache.hot",
    "KVSERVING_": "remove it: it is the operator's own",
}
FREE_ENV: Final = frozenset({"LMCACHE_LOG_LEVEL"})
"""Exceptions from the prefixes."""

ALLOCATOR_ENV: Final = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})


def env_remedy(name: str, value: str | None) -> str | None:
    """The remedy when the operator owns ``name`` (or its ``value`` cannot work); None if free."""
    if name in FREE_ENV:
        return None
    if name in ALLOCATOR_ENV and value and "expandable_segments" in value:
        return "remove expandable_segments: vLLM refuses it beside any KV connector"
    if name in OWNED_ENV:
        return OWNED_ENV[name]
    return next((r for prefix, r in OWNED_ENV_PREFIXES.items() if name.startswith(prefix)), None)
