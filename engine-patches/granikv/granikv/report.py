"""What a simulated run ends with."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Report:
    """What a run ends with."""

    seconds: float = 0.0
    steps: int = 0
    finished: int = 0
    failed: int = 0
    preempted: int = 0
    output_tokens: int = 0
    wrong_tokens: int = 0
    step_us: list[float] = field(default_factory=list)
    resize_step_us: list[float] = field(default_factory=list)
    percents: list[int] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Numbers for the command line; percentiles of step times, resizes apart."""
        quiet = self.step_us or [0.0]
        busy = self.resize_step_us or [0.0]
        return {
            "seconds": round(self.seconds, 3),
            "steps": self.steps,
            "finished": self.finished,
            "failed": self.failed,
            "preempted": self.preempted,
            "outputTokensPerSecond": round(self.output_tokens / max(self.seconds, 1e-9), 1),
            "wrongTokens": self.wrong_tokens,
            "p50StepUs": round(float(np.percentile(quiet, 50)), 1),
            "p99StepUs": round(float(np.percentile(quiet, 99)), 1),
            "resizeSteps": len(self.resize_step_us),
            "p99ResizeStepUs": round(float(np.percentile(busy, 99)), 1),
        }
