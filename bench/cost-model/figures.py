"""How close the fit comes, and the decision per request against fixed thresholds.

Usage: cd operator && python ../bench/cost-model/figures.py [--only fit|decisions] [--seeds N]
       [--requests N] [--streams N] [--json FILE]

With --only the other part of FILE stays. Both are simulations: noisy timers of a FIFO tier
(tests/unit/fit/workload.py), and a FIFO engine beside one (tests/unit/cost/queueing.py). Nothing
was measured on an engine. Pure Python; 500 seeds and 5 streams take about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "operator"))

from tests.unit.cost.queueing import MIXES as PROMPTS
from tests.unit.cost.queueing import from_length, load_aware, mean_seconds, stream
from tests.unit.cost.test_decision import BUSY, THRESHOLDS, own_wait_alone
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


def decisions(requests: int, streams: int) -> dict[str, Any]:
    """The rule as it is, and the one that weighs a request's own wait alone."""
    policies = {"rule": load_aware(PAPER), "ownWaitAlone": own_wait_alone}
    rows = []
    for mix in PROMPTS:
        for busy in BUSY:
            runs: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in policies}
            for seed in range(1, streams + 1):
                hits = stream(PAPER, mix, busy, requests, seed)
                fixed = [mean_seconds(PAPER, hits, from_length(n)) for n in THRESHOLDS]
                for name, policy in policies.items():
                    runs[name].append((mean_seconds(PAPER, hits, policy), fixed))
            row: dict[str, Any] = {"prompts": mix, "utilization": busy}
            for name, found in runs.items():
                row[name] = {
                    "meanTtftSeconds": _spread([rule for rule, _ in found]),
                    "overBestThreshold": _spread([rule / min(fixed) for rule, fixed in found]),
                    "overAlwaysLoad": _spread([rule / fixed[0] for rule, fixed in found]),
                    "overNeverLoad": _spread([rule / fixed[-1] for rule, fixed in found]),
                }
            rows.append(row)
    return {"requests": requests, "streams": streams, "rows": rows}


def _spread(values: list[float]) -> dict[str, float]:
    mean = sum(values) / len(values)
    return {name: round(v, 4) for name, v in (("mean", mean), ("most", max(values)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("fit", "decisions"))
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--requests", type=int, default=6_000)
    parser.add_argument("--streams", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        found = json.loads(options.json.read_text(encoding="utf-8"))
    if options.only != "fit":
        found["decisions"] = _dated(lambda: decisions(options.requests, options.streams))
    if options.only != "decisions":
        found["fit"] = _dated(lambda: fit(options.seeds))
    text = json.dumps(found, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(f"{text}\n", encoding="utf-8")


def _dated(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    found = measure()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **found,
        "seconds": round(time.monotonic() - began, 1),
    }


if __name__ == "__main__":
    main()
