"""Cases that are measured one after the other, each against one limit, and recorded as JSON."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

Object = dict[str, Any]


def record(
    name: str,
    what: str,
    cases: Mapping[str, Object],
    measured: Callable[[int, Object], Object],
    *,
    requests: int,
    limit: float,
    judged_by: str,
    more: Callable[[], Object] = dict,
) -> None:
    """Measure the cases and write results/NAME.json.

    `requests`: of each case, unless --requests says otherwise. `judged_by`: the key of what was
    measured that the limit is for. `more`: what the process can tell at the end.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=requests)
    options = parser.parse_args()
    found = {}
    for case, changes in cases.items():
        found[case] = measured(options.requests, changes)
        print(case, f"{judged_by} {found[case][judged_by]:.3g} of {limit:g}", flush=True)
    result = {
        "what": what,
        "python": sys.version.split()[0],
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load": os.getloadavg()[0],
        "requests": options.requests,
        "limit": limit,
        "within": all(case[judged_by] <= limit for case in found.values()),
        **more(),
        "cases": found,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
