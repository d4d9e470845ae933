"""What each decode step ran on, one JSON line a step: for tests that have to explain a token.

A request's token number i (0 is the prefill's) was computed by the i-th line that names it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from granikv.sglang.core import Core
from granikv.shapes import StepPlan


class Journal:
    """Appends to a file; `step` costs a line of text a decode step, so it is off unless asked."""

    def __init__(self, file: Path) -> None:
        self._out = file.open("a", buffering=1)
        self._ways: list[str] = []

    def step(self, core: Core, reqs: Sequence[Any], plan: StepPlan | None, *, graph: bool) -> None:
        """One step of these requests; `plan` is the new one, or None when the last one holds."""
        if plan is not None:
            self._ways = ways(plan)
        moving = core.upkeep.moving
        line = {
            "rids": [str(r.rid) for r in reqs],
            "ways": self._ways[: len(reqs)],
            "planned": plan is not None,
            "graph": graph,
            "epoch": core.epoch,
            "percent": core.fp.percent,
            "moving": moving is not None and not moving.done,
        }
        self._out.write(json.dumps(line) + "\n")


def ways(plan: StepPlan) -> list[str]:
    """For each request of a plan the HOT ranges it reads and how, e.g. "cascade 2100 x 40"."""
    order = plan.view("order")[: plan.batch]
    found: list[list[str]] = [[] for _ in range(plan.batch)]
    for cls in plan.classes:
        for position in order[cls.first : cls.last]:
            found[int(position)].append(f"{cls.path.value} {cls.length} x {cls.members}")
    return ["; ".join(parts) or "no HOT range" for parts in found]
