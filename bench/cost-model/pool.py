"""One engine against four behind a router: from which load on are hits quicker, by the simulation.

    PYTHONPATH=operator python bench/cost-model/pool.py > bench/cost-model/results/pool.json

What the cost model says is shown twice: for lengths by chance, as it is told by default, and for
those that are sent, which are all alike. Published numbers of GLM (docs/tuning.md), prompts of
16,000 tokens that the tier holds whole, Poisson arrivals, 3,000 requests, seed 0. Deterministic.
"""

import json
import platform
from typing import Any

from kvserving_operator.cost import Model, Operation, Pool, Routing, verdict
from kvserving_operator.simulation.results import document
from kvserving_operator.simulation.shipped import scenario
from kvserving_operator.simulation.world import simulate

RATE, BYTES, BANDWIDTH, ENGINE, REQUEST, TOKENS = 52_200.0, 47_700.0, 10.76e9, 0.182, 0.148, 16_000
MODEL = Model(
    tokens_per_second=RATE,
    bytes_per_token=BYTES,
    bandwidth=BANDWIDTH,
    engine_fixed_seconds=ENGINE,
    request_fixed_seconds=REQUEST,
)


def simulated(engines: int, arrivals: float, loading: str) -> dict[str, Any]:
    """Mean and median time to the first token, and the share of time the engines computed."""
    remote = {
        "bandwidth": BANDWIDTH,
        "engineFixedSeconds": ENGINE,
        "requestFixedSeconds": REQUEST,
        "loading": loading,
    }
    made = scenario(
        {
            "bytesPerToken": BYTES,
            "engines": {"count": engines, "tokensPerSecond": RATE, "remote": remote},
            "primed": {"remote": 1.0},
            "workload": {
                "requests": 3000,
                "promptTokens": TOKENS,
                "arrivals": {"rate": arrivals},
            },
        }
    )
    found = document(simulate(made).outcome)
    return {
        "meanSeconds": round(found["ttft"]["mean"], 3),
        "p50Seconds": round(found["ttft"]["p50"], 3),
        "busy": round(found["gpuUtilization"], 3),
    }


def said(engines: int, arrivals: float, busy: float, variation: float) -> dict[str, Any]:
    """The verdict of ``kvserving plan``."""
    pool = Pool(replicas=engines, routing=Routing.FREEST, work_variation=variation)
    found = verdict(
        MODEL,
        Operation(hit_tokens=TOKENS, prompt_tokens=TOKENS, arrivals=arrivals, busy=busy, pool=pool),
    )
    return {
        "pays": found.pays.value,
        "recomputeSeconds": round(found.recompute_seconds, 3),
        "loadSeconds": round(found.load_seconds, 3),
    }


def row(engines: int, busy: float) -> dict[str, Any]:
    """One load: what the model says, and what comes out."""
    arrivals = engines * busy * RATE / TOKENS
    return {
        "engines": engines,
        "u": busy,
        "model": said(engines, arrivals, busy, variation=1.0),
        "modelOfEqualLengths": said(engines, arrivals, busy, variation=0.0),
        "recompute": simulated(engines, arrivals, "Bypass"),
        "load": simulated(engines, arrivals, "Async"),
        "perRequest": simulated(engines, arrivals, "Auto"),
    }


def main() -> None:
    """Print all rows."""
    rows = [row(engines, busy) for engines in (1, 4) for busy in (0.4, 0.6, 0.8, 0.9, 0.95)]
    about = "TTFT by kvserving's simulation, four ways; published numbers of GLM, no GPU took part"
    print(json.dumps({"about": about, "python": platform.python_version(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
