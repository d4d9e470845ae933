"""GraniKV's simulator as an engine process: real pools, radix tree and control, no kernels."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from granikv.mix import arrivals, parse
from granikv.simulate import Engine, Setup

from .processes import Process, free_port

PACKAGE = Path(__file__).parents[3] / "engine-patches" / "granikv"
SLOTS, BATCH, ZIPF = 120_000, 128, 0.3


class Simulator(Process):
    """`python -m granikv.poolsim` with its control contract and an engine's front."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "poolsim.log")
        self.port = free_port()
        self.front = free_port()

    def start(self, *mixes: str, percent: int, pace: float) -> None:
        flags = {"port": self.port, "front": self.front, "percent": percent, "pace": pace}
        flags |= {"slots": SLOTS, "batch": BATCH, "zipf": ZIPF}
        words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        words += [word for mix in mixes for word in ("--mix", mix)]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        self.spawn(sys.executable, "-m", "granikv.poolsim", *words, env=environment)


def static_step_us(percent: int, mix: str) -> float:
    """Median step of a simulated engine whose share stays as it is, microseconds."""
    engine = Engine(Setup(slots=SLOTS, percent=percent, max_batch=BATCH))
    summary = engine.run(arrivals(parse([mix]), zipf=ZIPF)).summary()
    assert summary["wrongTokens"] == 0
    return summary["p50StepUs"]
