"""Real SGLang servers under shared-prefix load: stock backends against GraniKV.

    python -m granikv.serve_bench OUT.json --arms triton,granikv --loads 4096,8192,16384,4x

Weights are dummies of the real shapes: speed does not depend on them.  All arms run with the
engine's own prefix cache, captured decode graphs, no captured prefill.  The Amdahl terms: alpha is
the share of the stock step that prefix attention takes, from the stock arm's inter-token latency
at this prefix and at the shortest one; s_eff from the cost table; S = 1 / (1 - alpha + alpha / s).
s_eff compares our own two paths, so it fits only a stock backend as fast as our paged one.  gamma,
the paper's host share, is not measured.  Arms run in the order given, once: no error bars.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from granikv.dispatch import PAGED_WAYS, Way, load_table
from granikv.measure.load import Load, Outcome, drive
from granikv.measure.server import Server, wait

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


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve."""

    name: str
    flags: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


ARMS = {
    "triton": Arm("triton", ("--attention-backend", "triton")),
    "fa3": Arm("fa3", ("--attention-backend", "fa3")),
    "flashinfer": Arm("flashinfer", ("--attention-backend", "flashinfer")),
    "granikv": Arm("granikv", ("--attention-backend", "granikv")),
    "granikv-fa3": Arm(
        "granikv-fa3",
        ("--prefill-attention-backend", "fa3", "--decode-attention-backend", "granikv"),
    ),
    "granikv-paged": Arm(
        "granikv-paged", ("--attention-backend", "granikv"), {"GRANIKV_FORCE": "paged.fused"}
    ),
    "granikv-overlap": Arm(
        "granikv-overlap", ("--attention-backend", "granikv"), {"GRANIKV_GRAPH_MODE": "overlap"}
    ),
}
LOADS = {
    "512": Load("512", (512,)),
    "512-low": Load("512-low", (512,), requests=48, rate=4.0),
    "4096": Load("4096", (4096,)),
    "8192": Load("8192", (8192,)),
    "16384": Load("16384", (16384,)),
    "4x": Load("4x", (16384, 8192, 4096, 2048)),
    "16x": Load("16x", tuple(1024 * (i % 8 + 1) for i in range(16))),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Start all arms, run every load on each in turn, write JSON after each outcome."""
    parser = argparse.ArgumentParser(prog="granikv.serve_bench", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--arms", default="triton,granikv")
    parser.add_argument("--loads", default="512,4096,8192,16384,4x")
    parser.add_argument("--tokens", type=int, default=250_000, help="KV slots of each server")
    parser.add_argument("--context", type=int, default=20_000)
    parser.add_argument("--fraction", type=float, default=0.2, help="of the GPU, for one server")
    parser.add_argument("--work", type=Path, default=Path("serve-bench"), help="models and logs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no load after this")
    given = parser.parse_args(arguments)
    arms = [ARMS[name] for name in given.arms.split(",")]
    servers = start(arms, given)
    up = wait(list(servers.values()), 240.0)
    for server in servers.values():
        if server not in up:
            say(f"{server.name} is not up:\n{server.tail(60)}")
    try:
        rows = measure([s for s in servers.values() if s in up], given)
    finally:
        for server in servers.values():
            server.stop(2.0)
    return 0 if rows and len(up) == len(servers) else 1


def start(arms: Sequence[Arm], given: argparse.Namespace) -> dict[str, Server]:
    """All servers at once: one that waits leaves the GPU to the others."""
    model = given.work / given.shape
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(COMMON | SHAPES[given.shape]))
    flags = (
        "--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "bfloat16",
        "--context-length", str(given.context), "--max-total-tokens", str(given.tokens),
        "--max-running-requests", "256", "--mem-fraction-static", str(given.fraction),
        "--chunked-prefill-size", "8192", "--cuda-graph-bs-decode", *GRAPHS,
    )  # fmt: skip
    servers = {}
    for i, arm in enumerate(arms):
        environment = {"GRANIKV_PORT": str(9097 + i), "GRANIKV_HOT_PERCENT": "30"}
        servers[arm.name] = Server(
            arm.name, 31000 + 100 * i, model, [*flags, *arm.flags],
            given.work / f"{arm.name}.log", environment | arm.environment,
        )  # fmt: skip
    return servers


def measure(servers: Sequence[Server], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Every load on every server; a server that dies is left out from then on."""
    began, rows = time.monotonic(), []
    for server in servers:
        say(f"{server.name}: up in {server.seconds:.0f} s")
        drive(server, Load("warm", (2048,), requests=256, rate=200.0, output=24))
    for name in given.loads.split(","):
        for server in servers:
            if time.monotonic() - began > given.seconds or not server.alive():
                say(f"{server.name} {name}: skipped")
                continue
            outcome = drive(server, LOADS[name])
            rows.append({"arm": server.name, "load": name, **row(outcome), **steps(server)})
            say(json.dumps(rows[-1]))
            given.out.write_text(json.dumps(report(rows, given), indent=1) + "\n")
    return rows


def row(outcome: Outcome) -> dict[str, float]:
    """One line of the result."""
    found = {"tokensPerSecond": outcome.rate, **asdict(outcome)}
    return {key: round(value, 3) for key, value in found.items()}


def steps(server: Server) -> dict[str, Any]:
    """GraniKV's counters so far, as its control contract has them; nothing for a stock arm."""
    if not server.name.startswith("granikv"):
        return {}
    port = 9097 + (server.port - 31000) // 100
    try:
        counters = json.loads(server.get("/v1/state", port=port))["counters"]
    except OSError as error:
        return {"control": repr(error)}
    wanted = ("class_steps", "promotions", "hit_tokens", "hot_failed", "dispatch")
    return {"counters": {k: v for k, v in counters.items() if any(w in k for w in wanted)}}


def report(rows: Sequence[dict[str, Any]], given: argparse.Namespace) -> dict[str, Any]:
    """Rows, ratios to the fastest stock arm that ran, and predicted against measured."""
    by = {(r["arm"], r["load"]): r for r in rows}
    stock = [arm for arm in {r["arm"] for r in rows} if not arm.startswith("granikv")]
    found = []
    for (arm, load), mine in by.items():
        rivals = [by[s, load] for s in stock if (s, load) in by]
        if arm.startswith("granikv") and rivals:
            best = max(rivals, key=lambda r: r["tokensPerSecond"])
            found.append({
                "arm": arm, "load": load, "against": best["arm"], "stockArms": sorted(stock),
                "ratio": round(mine["tokensPerSecond"] / best["tokensPerSecond"], 3),
                **amdahl(best, by.get((best["arm"], "512")), LOADS[load]),
            })  # fmt: skip
    return {"shape": given.shape, "rows": list(rows), "ratios": found}


def amdahl(best: dict[str, Any], short: dict[str, Any] | None, load: Load) -> dict[str, float]:
    """alpha, s_eff and the predicted ratio of step times; empty without the short load."""
    if short is None or len(load.lengths) > 1 or not best["inter_token_ms"]:
        return {}
    table = load_table("NVIDIA H200", 8, 4, 128)
    length, members = load.lengths[0], 256

    def prefix(ways: Sequence[Way]) -> float:
        whole = table.best(ways, members, length)[0]
        return max(1e-3, whole - table.best(ways, members, table.lengths[0])[0])

    alpha = max(0.0, 1.0 - short["inter_token_ms"] / best["inter_token_ms"])
    s_eff = prefix(PAGED_WAYS) / prefix([Way.CASCADE_FUSED])
    return {
        "alpha": round(alpha, 3), "sEff": round(s_eff, 2),
        "predicted": round(1.0 / (1.0 - alpha + alpha / s_eff), 3),
    }  # fmt: skip


def say(text: str, out: Callable[[str], object] = sys.stdout.write) -> None:
    """A line of progress, at once."""
    out(f"[{time.strftime('%H:%M:%S')}] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
