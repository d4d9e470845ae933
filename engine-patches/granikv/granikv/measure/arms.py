"""Model shapes and the ways to serve them; starts the servers.

Weights are dummies of the real shapes: speed does not depend on them.  All arms run with the
engine's own prefix cache and captured decode graphs, without captured prefill.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from granikv.measure.server import Server

SHAPES: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "rope_theta": 500000.0,
    },
    "qwen-2.5-14b": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 5120,
        "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "vocab_size": 152064, "rope_theta": 1000000.0,
    },
}  # fmt: skip
COMMON = {
    "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "attention_bias": False, "initializer_range": 0.02,
}  # fmt: skip
GRAPHS = ("1", "2", "4", "8", "16", "32", "64", "96", "128", "160", "192", "224", "256")


STOCK = {"SGLANG_PLUGINS": "none"}  # nothing of ours is loaded
FA3_PREFILL = ("--prefill-attention-backend", "fa3", "--decode-attention-backend", "granikv")


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve."""

    name: str
    flags: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


ARMS = {
    "triton": Arm("triton", ("--attention-backend", "triton"), STOCK),
    "fa3": Arm("fa3", ("--attention-backend", "fa3"), STOCK),
    "flashinfer": Arm("flashinfer", ("--attention-backend", "flashinfer"), STOCK),
    "granikv": Arm("granikv", ("--attention-backend", "granikv")),
    "granikv-fa3": Arm("granikv-fa3", FA3_PREFILL),
    "granikv-pages": Arm("granikv-pages", FA3_PREFILL, {"GRANIKV_STORAGE": "pages"}),
    "granikv-paged": Arm(
        "granikv-paged", ("--attention-backend", "granikv"), {"GRANIKV_FORCE": "paged.fused"}
    ),
    "granikv-overlap": Arm("granikv-overlap", FA3_PREFILL, {"GRANIKV_GRAPH_MODE": "overlap"}),
}
# What stands in for an arm that does not come up.
FALLBACK = {"granikv-fa3": "granikv", "fa3": "triton"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What every server gets."""

    shape: str
    tokens: int  # KV slots
    context: int
    fraction: float  # of the GPU that weights and KV of all servers may take together
    percent: int  # HOT


def prepare(sizes: Sizes, work: Path) -> tuple[Path, list[str]]:
    """Write the model's configuration; its folder, and the flags of every arm."""
    model = work / sizes.shape
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(COMMON | SHAPES[sizes.shape]))
    return model, [
        "--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "bfloat16",
        "--context-length", str(sizes.context), "--max-total-tokens", str(sizes.tokens),
        "--max-running-requests", "256", "--mem-fraction-static", str(sizes.fraction),
        "--chunked-prefill-size", "8192", "--cuda-graph-bs-decode", *GRAPHS,
    ]  # fmt: skip


def start(
    names: Sequence[str], sizes: Sizes, work: Path, taken: Mapping[str, Server] | None = None
) -> dict[str, Server]:
    """These arms at once, on ports behind those already taken."""
    model, flags = prepare(sizes, work)
    servers = {}
    for i, name in enumerate(names, len(taken or ())):
        arm = ARMS[name]
        environment = {
            "GRANIKV_PORT": str(9097 + i), "GRANIKV_HOT_PERCENT": str(sizes.percent),
        }  # fmt: skip
        servers[name] = Server(
            name, 31000 + 100 * i, model, [*flags, *arm.flags], work / f"{name}.log",
            environment | arm.environment,
        )  # fmt: skip
    return servers


def control_port(server: Server) -> int:
    """Where a GraniKV arm answers the control contract."""
    return 9097 + (server.port - 31000) // 100
