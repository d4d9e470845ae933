"""`simulate` against `replay` of the same trace on engine-sim: every percentile side by side.

    python bench/simulate/against_replay.py [--requests 120]

Starts engine-sim as a process (no LMCache), draws a trace, replays it and simulates it with the
speed that engine-sim was told and what its page says it costs beside that. Writes
results/against_replay.json. Run it on a machine that does nothing else.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from cases import record
from engine import EngineSim, kvserving

RATE, TOKEN_SECONDS, STEP_TOKENS = 4000, 0.01, 2048
REQUEST_SECONDS = 0.019
"""images/engine-sim/README.md: latency beyond the simulated compute, median of an idle engine."""
LIMIT = 0.15


def scenario(requests: int, case: dict[str, Any]) -> dict[str, Any]:
    return {
        "bytesPerToken": 256,
        "chunkTokens": 64,
        "engines": {
            "tokensPerSecond": RATE,
            "interTokenSeconds": TOKEN_SECONDS,
            "stepTokens": STEP_TOKENS,
            "requestSeconds": REQUEST_SECONDS,
            "ranks": 1,
            "deviceTokens": 65_536,
        },
        "workload": {
            "requests": requests,
            "promptTokens": {"min": 500, "median": 1500, "max": 6000},
            "outputTokens": {"min": 1, "median": 8, "max": 32},
            **case,
        },
    }


CASES: dict[str, dict[str, Any]] = {
    "even, half busy": {"arrivals": {"rate": 1.0, "variation": 1.0}},
    "four fifths busy": {"arrivals": {"rate": 1.6, "variation": 1.0}},
    "bursts of four": {"arrivals": {"rate": 1.0, "variation": 1.0, "burst": 4}},
    "shared prefixes": {
        "arrivals": {"rate": 1.6, "variation": 1.0},
        "prefixes": {"count": 5, "tokens": 1024},
    },
}


def compared(folder: Path, requests: int, case: dict[str, Any]) -> dict[str, Any]:
    """One case on an engine of its own, whose caches are empty."""
    spec, trace, replayed = folder / "spec.yaml", folder / "trace.jsonl", folder / "replay.json"
    spec.write_text(json.dumps(scenario(requests, case)))
    kvserving("simulate", "--workload", str(spec), "--trace-out", str(trace))
    budget = ("--max-num-batched-tokens", str(STEP_TOKENS))
    engine = EngineSim(folder / "engine", *budget, rate=RATE, token_seconds=TOKEN_SECONDS)
    try:
        metrics = ("--metrics", engine.url, "--tokens-per-second", str(RATE))
        result = kvserving("replay", "--trace", str(trace), "--url", engine.url, *metrics)
    finally:
        engine.stop()
    replayed.write_text(json.dumps(result))
    both = kvserving(
        *("simulate", "--workload", str(spec), "--trace", str(trace)),
        *("--compare", str(replayed)),
    )
    rows = both["compare"]
    return {
        "percentiles": rows,
        "worst": max(abs(row["relative"]) for row in rows.values()),
        "gpuUtilization": {"simulate": both["gpuUtilization"], "replay": result["gpuUtilization"]},
        "completed": result["completed"],
    }


def fresh(requests: int, case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return compared(Path(folder), requests, case)


if __name__ == "__main__":
    record(
        "against_replay",
        "TTFT of one trace, simulated and replayed on engine-sim; relative = ours/theirs-1",
        CASES,
        fresh,
        requests=60,
        limit=LIMIT,
        judged_by="worst",
    )
