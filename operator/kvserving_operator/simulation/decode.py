"""One decode engine: all streams of the batch get their next token together. Pure.

Between two changes of the batch a step takes the same time, so progress is counted in tokens per
stream and a stream ends when that count has grown by its output: no event for each token.
"""

import heapq
from collections import deque
from collections.abc import Callable

from kvserving_operator.simulation.engine import Timer
from kvserving_operator.simulation.job import Job
from kvserving_operator.simulation.scenario import Decode


class DecodeEngine:
    """``ended`` is told of each job whose last token is out."""

    def __init__(self, settings: Decode, at: Timer, ended: Callable[[Job, float], None]) -> None:
        self._settings = settings
        self._at = at
        self._ended = ended
        self._batch: list[tuple[float, int, Job]] = []
        self._waiting: deque[Job] = deque()
        self._progress = 0.0
        self._since = 0.0
        self._alarm = 0

    def __len__(self) -> int:
        """Streams, waiting ones included."""
        return len(self._batch) + len(self._waiting)

    def submit(self, job: Job, now: float) -> None:
        """The KV of a prompt has arrived."""
        self._waiting.append(job)
        self._change(now)

    def _step_seconds(self) -> float:
        return self._settings.alpha_seconds + self._settings.beta_seconds * len(self._batch)

    def _advance(self, now: float) -> None:
        if self._batch:
            self._progress += (now - self._since) / self._step_seconds()
        self._since = now

    def _change(self, now: float) -> None:
        """Take in who waits, and set the alarm for who ends next."""
        self._advance(now)
        while self._waiting and len(self._batch) < self._settings.max_streams:
            job = self._waiting.popleft()
            heapq.heappush(self._batch, (self._progress + job.output_tokens, job.index, job))
            job.first_token = now + self._step_seconds()
        self._alarm += 1
        if self._batch:
            alarm = self._alarm
            left = max(0.0, self._batch[0][0] - self._progress)
            self._at(now + left * self._step_seconds(), lambda time: self._ring(alarm, time))

    def _ring(self, alarm: int, now: float) -> None:
        if alarm != self._alarm:
            return
        self._advance(now)
        self._progress = max(self._progress, self._batch[0][0])
        while self._batch and self._batch[0][0] <= self._progress:
            _, _, job = heapq.heappop(self._batch)
            self._ended(job, now)
        self._change(now)
