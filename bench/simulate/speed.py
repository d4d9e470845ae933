"""How fast the simulation is: 100,000 requests of 16k tokens on one core.

    python bench/simulate/speed.py [--requests 100000]

Writes results/speed.json.
"""

import resource
import time
from typing import Any

from cases import record

from kvserving_operator.simulation.shipped import scenario
from kvserving_operator.simulation.world import simulate

LIMIT = 60.0
ENGINES: dict[str, Any] = {
    "count": 4,
    "local": {"bytes": "480Gi"},
    "remote": {"bytesPerInstance": "120Gi"},
}
CASES: dict[str, dict[str, Any]] = {
    "every prompt new": {"engines": ENGINES},
    "shared prefixes, loaded": {
        "engines": {
            "count": 4,
            "local": {"bytes": "40Gi"},
            "remote": {"bytesPerInstance": "160Gi", "loading": "Async"},
        },
        "policy": "RoundRobin",
        "workload": {"prefixes": {"count": 2000, "tokens": 12_000}},
    },
    "one engine, computing only": {"engines": {"local": {"bytes": 0}, "remote": None}},
}


def measured(requests: int, changes: dict[str, Any]) -> dict[str, Any]:
    rate = 1.2 * changes["engines"].get("count", 1)
    base = {"extends": "table2-h4", "primed": {"remote": 0}}
    workload = {"requests": requests, "arrivals": {"rate": rate, "profile": []}}
    settings = scenario({**base, "workload": workload}, changes)
    wall, cpu = time.monotonic(), time.process_time()
    outcome = simulate(settings).outcome
    return {
        "seconds": round(time.monotonic() - wall, 2),
        "cpuSeconds": round(time.process_time() - cpu, 2),
        "fromL2Fraction": round(outcome.from_remote_share or 0.0, 4),
        "simulatedSeconds": round(outcome.seconds),
    }


def peak() -> dict[str, Any]:
    return {"peakMiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


if __name__ == "__main__":
    record(
        "speed",
        "requests of 16k tokens (64 chunks) on one core; limit in seconds",
        CASES,
        measured,
        requests=100_000,
        limit=LIMIT,
        judged_by="cpuSeconds",
        more=peak,
    )
