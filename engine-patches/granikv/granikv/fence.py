"""The step fence: nothing that a planned step reads may change its meaning before it is launched.

A step is open from its plan to its launch (copies and kernels share one stream, so what is
enqueued later cannot overtake it).  Frees asked for meanwhile are kept and done when every step
that was open at that time has closed.
"""

from collections import deque
from collections.abc import Callable

from granikv.errors import BadSizeError


class StepFence:
    """Open steps, and the work that waits for them, oldest first."""

    def __init__(self) -> None:
        self._next = 0
        self._open: set[int] = set()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no step is open."""
        return not self._open

    def open(self) -> int:
        """Start a step; its number goes to `close`."""
        step = self._next
        self._next += 1
        self._open.add(step)
        return step

    def close(self, step: int) -> None:
        """End a step and do what waited for it."""
        if step not in self._open:
            raise BadSizeError(f"step {step} is not open")
        self._open.remove(step)
        oldest = min(self._open, default=self._next)
        while self._waiting and self._waiting[0][0] < oldest:
            self._waiting.popleft()[1]()

    def after(self, action: Callable[[], None]) -> None:
        """Do this now, or when every step that is open now has closed."""
        if self.idle:
            action()
        else:
            self._waiting.append((self._next - 1, action))
