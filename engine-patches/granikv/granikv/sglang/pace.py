"""Time from one decode step to the next, apart for steps beside a relocation: p50, p99, longest.

Taken where a step is planned.  The engine plans a step when the one before the last has ended, so
in a run of decode steps the distances between plans are the steps' durations.
"""

import time
from collections import deque
from collections.abc import Callable

from granikv.metrics import Samples

KEPT = 4096
QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


class Pace:
    """The last KEPT decode steps of each kind; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._after = False  # whether the last step was planned beside a relocation
        self.seconds: dict[bool, deque[float]] = {
            moving: deque(maxlen=KEPT) for moving in (False, True)
        }
        self.steps = {False: 0, True: 0}

    def step(self, *, moving: bool) -> None:
        """A decode step is planned; `moving`: slots are on the move before it."""
        now = self._clock()
        if self._last is not None:
            kind = self._after or moving
            self.seconds[kind].append(now - self._last)
            self.steps[kind] += 1
        self._last, self._after = now, moving

    def interrupt(self) -> None:
        """Something else than a decode step runs: the next distance says nothing."""
        self._last = None

    def samples(self) -> Samples:
        """Microseconds by quantile and kind, and how many steps there were of each."""
        found: Samples = {}
        for moving, name in ((False, "quiet"), (True, "resizing")):
            times = sorted(self.seconds[moving])
            found["granikv_decode_steps_total", (("beside", name),)] = float(self.steps[moving])
            for quantile, share in QUANTILES if times else ():
                value = times[min(len(times) - 1, int(share * len(times)))]
                labels = (("beside", name), ("quantile", quantile))
                found["granikv_decode_step_microseconds", labels] = round(1e6 * value, 1)
        return found
