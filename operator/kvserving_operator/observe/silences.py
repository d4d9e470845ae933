"""Who did not answer is left alone for a while, whoever asks.

Each question to somebody who hangs costs its whole deadline, and a worker with it. So silence is
remembered where all objects see it; when its time is over one question is asked, and until that is
answered the others still count as answered by silence. What costs no time needs none of this.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

COSTLY: Final = 0.25
"""Seconds from which on a question that failed was one to spare."""
_REMEMBERED: Final = 5000

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Silence(Generic[T]):
    what: T
    until: float
    wait: float


class Silences(Generic[T]):
    """Those who fell silent, with what is known of the silence."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        probe: float,
        first: float = 30.0,
        most: float = 120.0,
    ) -> None:
        """Silence: seconds that one question may take, the first wait, and the longest.

        Each wait is twice as long as the one before.
        """
        self._clock = clock
        self._probe, self._first, self._most = probe, first, most
        self._silent: OrderedDict[Hashable, _Silence[T]] = OrderedDict()

    def __contains__(self, whom: Hashable) -> bool:
        """Whether the last question to him cost its time for nothing."""
        return whom in self._silent

    async def ask(
        self,
        whom: Hashable,
        question: Callable[[], Awaitable[R]],
        *,
        wrong: Callable[[R], T | None],
        alone: Callable[[T], R],
    ) -> R:
        """The answer of one who may be asked, whose silence is remembered.

        `wrong`: what is wrong with an answer; None: he is not silent. `alone`: what stands for the
        answer of one who is left alone, given what is known of his silence.
        """
        known = self.of(whom)
        if known is not None:
            return alone(known)
        began = time.perf_counter()
        answer = await question()
        self.went(whom, wrong(answer), seconds=time.perf_counter() - began)
        return answer

    def of(self, whom: Hashable) -> T | None:
        """What is known of one who is to be left alone; None: ask, and tell how it went."""
        silence = self._silent.get(whom)
        if silence is None:
            return None
        now = self._clock()
        if now < silence.until:
            return silence.what
        silence.until = now + self._probe
        return None

    def went(self, whom: Hashable, what: T | None, *, seconds: float) -> None:
        """A question took so long; `what` went wrong, or (None) it was answered."""
        before = self._silent.pop(whom, None)
        if what is None or seconds < COSTLY:
            return
        wait = self._first if before is None else min(self._most, 2 * before.wait)
        self._silent[whom] = _Silence(what, self._clock() + wait, wait)
        while len(self._silent) > _REMEMBERED:
            self._silent.popitem(last=False)
