"""How close the fit comes, and the decision per request against fixed thresholds.

Usage: cd operator && python ../bench/cost-model/figures.py [--seeds N] [--requests N] [--json FILE]

Both are simulations: noisy timers of a FIFO tier (tests/unit/fit/workload.py), and a FIFO engine
beside one (tests/unit/cost/queueing.py). Nothing was measured on an engine. Pure Python; 500 seeds
take about five minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "operator"))

from tests.unit.cost.queueing import MIXES as PROMPTS
from tests.unit.cost.queueing import load_aware
from tests.unit.cost.test_decision import BUSY, THRESHOLDS, against_thresholds
from tests.unit.cost.test_model import PAPER
from tests.unit.fit.test_accuracy import (
    LOADS,
    WARM_UP,
    close,
    loads_until_right,
    run,
    settled,
    share,
)
from tests.unit.fit.workload import MIXES

FACTORS = (0.16, 0.5, 0.7, 1.5, 2.0, 6.3)


def fit(seeds: int) -> dict[str, Any]:
    return {
        "seeds": seeds,
        "noise": 0.2,
        "outliers": 0.05,
        "shareWithinBoundsAfter200": {
            mix: share(seeds, lambda seed, mix=mix: settled(seed, mix)) for mix in MIXES
        },
        "stepOfBandwidth": {str(factor): _step(seeds, factor) for factor in FACTORS},
    }


def _step(seeds: int, factor: float) -> dict[str, Any]:
    loads = sorted(loads_until_right(seed, factor) for seed in range(seeds))

    def right_at_60(seed: int) -> bool:
        made = run(seed)
        made.loads(WARM_UP + LOADS)
        made.workload.truth.bandwidth *= factor
        made.loads(60)
        return close(made.known.bandwidth, made.workload.truth.bandwidth, 0.05)

    return {
        "loadsUntilRightMedian": loads[len(loads) // 2],
        "loadsUntilRightP95": loads[int(0.95 * len(loads))],
        "shareRightWithin60": sum(count <= 60 for count in loads) / len(loads),
        "shareRightAt60": share(seeds, right_at_60),
    }


def decisions(requests: int) -> list[dict[str, Any]]:
    rows = []
    for mix in PROMPTS:
        for busy in BUSY:
            rule, *fixed = against_thresholds(mix, busy, requests, load_aware(PAPER))
            best = min(range(len(fixed)), key=fixed.__getitem__)
            rows.append(
                {
                    "prompts": mix,
                    "utilization": busy,
                    "meanTtftSeconds": round(rule, 4),
                    "overBestThreshold": round(rule / fixed[best], 4),
                    "bestThresholdTokens": min(THRESHOLDS[best], 1e9),
                    "overAlwaysLoad": round(rule / fixed[0], 4),
                    "overNeverLoad": round(rule / fixed[-1], 4),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--requests", type=int, default=6_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "decisions": decisions(options.requests),
        "fit": fit(options.seeds),
        "seconds": 0.0,
    }
    found["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
