"""What of SGLang's command line and environment is the operator's, and where it refers to. Pure.

Flag names, aliases included, were read from SGLang 0.5.23 (``sglang/srt/arg_groups/fields``).
"""

from typing import Final

from kvserving_operator.engines.flags import FlagTable, flag
from kvserving_operator.engines.remedies import NODES, PARALLELISM, PORTS, TLS

_WIRING: Final = "set spec.transfer"
_TIER: Final = "remove it: cache tiers are not available with SGLang here"


OWNED_FLAGS: Final = FlagTable(
    (
        flag("write the flags themselves", "--config"),
        flag("remove it: the engine would print its help and end", "--help", "-h"),
        flag("set spec.model.name or spec.model.volume.path", "--model-path", "--model"),
        flag("set spec.model.servedNames", "--served-model-name"),
        flag("set spec.model.revision", "--revision"),
        flag("set spec.model.maxModelLen", "--context-length"),
        flag("set spec.kvCache.dtype", "--kv-cache-dtype"),
        flag(PORTS, "--host", "--port", "--grpc-mode", "--smg-grpc-mode", "--grpc-port"),
        flag(PORTS, "--smg-http-sidecar-port", "--grpc-http-sidecar-port"),
        flag(PORTS, "--nccl-port", "--gated-launch-port", "--fastapi-root-path"),
        flag(
            TLS,
            "--api-key",
            "--admin-api-key",
            "--ssl-keyfile",
            "--ssl-certfile",
            "--ssl-ca-certs",
            "--ssl-keyfile-password",
            "--enable-ssl-refresh",
        ),
        flag("remove it: the operator measures by the metrics", "--enable-metrics"),
        flag(PARALLELISM, "--tp-size", "--tensor-parallel-size"),
        flag(PARALLELISM, "--pp-size", "--pipeline-parallel-size"),
        flag(PARALLELISM, "--dp-size", "--data-parallel-size"),
        flag(PARALLELISM, "--attn-dp-size", "--attention-data-parallel-size"),
        flag(PARALLELISM, "--enable-dp-attention"),
        flag(PARALLELISM, "--dcp-size", "--decode-context-parallel-size"),
        flag(PARALLELISM, "--ep-size", "--expert-parallel-size", "--ep"),
        flag(
            "remove it: context parallel prefill is not available with SGLang here",
            "--enable-prefill-cp",
            "--cp-strategy",
            "--attn-cp-size",
            "--attention-context-parallel-size",
        ),
        flag(NODES, "--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr"),
        flag(
            _WIRING,
            "--disaggregation-mode",
            "--disaggregation-transfer-backend",
            "--disaggregation-bootstrap-port",
            "--enable-pd-role-switch",
        ),
        flag("remove it: nothing here listens to KV events yet", "--kv-events-config"),
        flag(_TIER, "--enable-lmcache", "--lmcache-config-file"),
        flag(_TIER, "--enable-flexkv", "--flexkv-config-file"),
    ),
)

ENGINE_ONLY_FLAGS: Final = FlagTable(
    tuple(
        flag("move it to spec.engine.extraArgs: both roles must run with the same value", *names)
        for names in (
            ("--page-size",),
            ("--dtype",),
            ("--quantization",),
            ("--quantization-param-path",),
            ("--speculative-algorithm",),
            ("--speculative-draft-model-path", "--speculative-draft-model"),
            ("--speculative-num-steps",),
            ("--speculative-eagle-topk",),
            ("--speculative-num-draft-tokens",),
            ("--tokenizer-path",),
            ("--tokenizer-mode",),
            ("--json-model-override-args",),
            ("--model-impl",),
            ("--trust-remote-code",),
            ("--disaggregation-decode-allocation-policy",),
            ("--disaggregation-enable-kv-checksum",),
        )
    ),
    others=frozenset({"--model"}),
)
"""Flags that shape the KV, the token ids or the transfer between the roles."""

HOT_FLAGS: Final = FlagTable(
    (
        flag(
            "remove it, or set spec.kvCache.hot.mode to Off: HOT needs the backend of its own",
            "--decode-attention-backend",
        ),
    )
)
"""Flags that the operator owns while HOT is on."""

OWNED_ENV: Final = {
    "PROMETHEUS_MULTIPROC_DIR": "remove it: the metrics are read from there",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "remove it: the probes rest on it",
    "SGLANG_PORT": PORTS,
    "SGLANG_GRPC_PORT": PORTS,
    "HF_HOME": "set spec.model.cache.mountPath",
    "HF_TOKEN": "set spec.model.huggingFace.tokenSecretRef",
    "HF_HUB_OFFLINE": "set spec.model.huggingFace.offline",
}
"""Variable to remedy."""

OWNED_ENV_PREFIXES: Final = {
    "SGLANG_DISAGGREGATION_NIXL_": "set spec.transfer.nixl",
    "LMCACHE_": _TIER,
    "GRANIKV_": "set spec.kvCache.hot",
    "KVSERVING_": "remove it: it is the operator's own",
}


def env_remedy(name: str) -> str | None:
    """The remedy when the operator owns ``name``; None if it is free."""
    if name in OWNED_ENV:
        return OWNED_ENV[name]
    return next((r for prefix, r in OWNED_ENV_PREFIXES.items() if name.startswith(prefix)), None)
