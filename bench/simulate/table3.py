"""Why four prefill engines come out slower than published: what the table itself says, and tries.

    PYTHONPATH=operator python bench/simulate/table3.py [--seeds 3]

Writes results/table3.json. Three parts:

little    Users of a closed loop = answers a second · (time to first token + time after it), by
          Little's law. What each pair of published runs then says of the time after it.
tries     Mechanisms that could be missing. For each the users are fitted on the published median of
          six engines alone; five and four are what comes out.
users     Users at which four engines have their published median, and what else they then have.
"""

import argparse
import json
import platform
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from tables import PUBLISHED

from kvserving_operator.simulation.results import document
from kvserving_operator.simulation.shipped import merge, scenario
from kvserving_operator.simulation.world import simulate

NAMES: Final = ("table3-6p1d", "table3-5p1d", "table3-4p1d")
LOADING: Final = {
    "bandwidth": 10.76e9,
    "engineFixedSeconds": 0.182,
    "requestFixedSeconds": 0.148,
    "loading": "Auto",
}
TRIES: Final[Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]] = {
    # What changes in all three runs, and what in that of four engines alone.
    "as shipped": ({}, {}),
    "router: in turn": ({"policy": "RoundRobin"}, {}),
    "router: by chance": ({"policy": "Random"}, {}),
    "decode: a token takes a quarter longer": (
        {"decode": {"alphaSeconds": 0.025, "betaSeconds": 0.00025}},
        {},
    ),
    "prompts: half of them above 150k": (
        {"workload": {"promptTokens": {"min": 9000, "median": 150000, "max": 200000}}},
        {},
    ),
    "prompts: half of them below 50k": (
        {"workload": {"promptTokens": {"min": 9000, "median": 50000, "max": 200000}}},
        {},
    ),
    "engines: steps of 16,384 tokens": ({"engines": {"stepTokens": 16384}}, {}),
    "four engines: a tenth of the prompts from the tier": (
        {},
        {"primed": {"remote": 0.1}, "engines": {"remote": LOADING}},
    ),
    "four engines: a quarter from the tier, kernel as it was": (
        {},
        {"primed": {"remote": 0.25}, "engines": {"tokensPerSecond": 49400, "remote": LOADING}},
    ),
}


def run(name: str, users: int, seeds: int, changes: Mapping[str, Any]) -> dict[str, float]:
    """Medians over seeds of what table 3 has, and the mean time after the first token."""
    loop = {"workload": {"arrivals": {"concurrency": users}}}
    settings = scenario({"extends": name}, merge(dict(changes), loop))
    rows = []
    for seed in range(seeds):
        made = simulate(settings, seed=seed)
        found = document(made.outcome)
        rows.append(
            {
                "p50": found["ttft"]["p50"],
                "p90": found["ttft"]["p90"],
                "mean": found["ttft"]["mean"],
                "tpm": found["throughputTokensPerSecond"] * 60 / 1e6,
                "afterFirstToken": fmean(job.end - job.first_token for job in made.requests),
            }
        )
    return {key: round(median(row[key] for row in rows), 2) for key in rows[0]}


def users_for(name: str, seeds: int, changes: Mapping[str, Any]) -> int:
    """Fewest users at which a run has its published median."""
    low, high = 10, 600
    while low < high:
        users = (low + high) // 2
        got = run(name, users, seeds, changes)["p50"]
        low, high = (users + 1, high) if got < PUBLISHED[name]["p50"] else (low, users)
    return low


def little() -> list[dict[str, Any]]:
    """The same users and prompts in both runs: how much longer after the first token in the second.

    N = X·(T + D), so D2 - D1 = (T1 + D1)·(X1/X2 - 1) - (T2 - T1), for several D1.
    """
    rows = []
    for first, second in combinations(NAMES, 2):
        one, two = PUBLISHED[first], PUBLISHED[second]
        ratio = one["tpm"] / two["tpm"]
        more = {
            str(after): round((one["mean"] + after) * (ratio - 1) - (two["mean"] - one["mean"]), 1)
            for after in (0, 20, 40, 60, 80, 100)
        }
        rows.append({"from": first, "to": second, "moreSecondsAfterFirstTokenIfBefore": more})
    return rows


def main() -> None:
    """All three parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    tries = []
    for what, (everywhere, four) in TRIES.items():
        users = users_for(NAMES[0], seeds, everywhere)
        row: dict[str, Any] = {"what": what, "users": users}
        for name in NAMES:
            changes = merge(dict(everywhere), four) if name == NAMES[-1] else everywhere
            row[name] = run(name, users, seeds, changes)
        tries.append(row)
        print(json.dumps(row), flush=True)
    own = users_for(NAMES[-1], seeds, {})
    result = {
        "what": "table 3: Little's law on published numbers, tries, users of four engines alone",
        "command": f"PYTHONPATH=operator python bench/simulate/table3.py --seeds {seeds}",
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "published": {name: PUBLISHED[name] for name in NAMES},
        "little": little(),
        "tries": tries,
        "users": {"users": own, **run(NAMES[-1], own, seeds, {})},
    }
    print(json.dumps(result["users"]))
    target = Path(__file__).parent / "results" / "table3.json"
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
