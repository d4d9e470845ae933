"""Parts of a pass that fail by themselves: the others go on, and the pass reports.

A fault of ours in one of them, or an answer that nobody thought of, must not keep the status from
being written or children from being repaired. Two things still end a pass: an API server that
cannot be reached, because then nothing else would come right either, and uncertain leadership.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from kvserving_operator.api.conditions import Reason
from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Key
from kvserving_operator.status import Trouble

logger = logging.getLogger(__name__)

LONGEST: Final = 30.0
"""Seconds for a part: each has bounds of its own, which are shorter."""
QUIET: Final = 3600.0
"""Seconds after which a part that goes on failing is logged again."""
_REMEMBERED: Final = 5000

T = TypeVar("T")


class Part(StrEnum):
    """What may fail by itself; the values are those of a metric's label."""

    TUNING = "tuning"
    STORES = "stores"
    HOT = "hot"
    TRANSFERS = "transfers"
    VITALS = "vitals"
    TIER = "tier"
    RESIZING = "resizing"
    REPLACING = "replacing"
    ROTATION = "rotation"


_ACTS: Final = {
    Part.RESIZING: "telling instances of the tier what they may hold",
    Part.REPLACING: "replacing pods",
    Part.ROTATION: "rotating passwords",
}
"""Those that do something; the others look, and what was said before stands."""


@dataclass(slots=True)
class Parts:
    """The parts of one pass."""

    key: Key
    uid: str
    logged: OrderedDict[tuple[str, Part], float]
    """Of all objects: when the failure of a part was logged, as a monotonic second."""
    longest: float = LONGEST
    failed: list[Part] = field(default_factory=list)
    """Of this pass."""
    troubles: list[Trouble] = field(default_factory=list)
    """What could not be done."""

    async def __call__(self, part: Part, work: Awaitable[T], otherwise: T) -> T:
        """What the part comes to, and `otherwise` where it fails.

        Raises:
            RequestError: The API server cannot be reached, or is too busy.
            FencedError: Leadership is no longer certain.
        """
        try:
            async with asyncio.timeout(self.longest):
                return await work
        except errors.FencedError:
            raise
        except errors.RequestError as error:
            if error.retryable:
                raise
            self._fails(part, error, why=str(error))
        except Exception as error:  # noqa: BLE001 whatever it is, it is about this part
            # Its own words may quote what was read.
            why = f"{type(error).__name__} inside the operator, see its log"
            self._fails(part, error, why=why)
        return otherwise

    @property
    def unseen(self) -> bool:
        """Whether something could not be looked at."""
        return any(part not in _ACTS for part in self.failed)

    def _fails(self, part: Part, error: Exception, *, why: str) -> None:
        self.failed.append(part)
        if part in _ACTS:
            message = f"{_ACTS[part]} failed: {why}"
            self.troubles.append(
                Trouble(reason=Reason.APPLY_FAILED, message=message, stalled=False)
            )
        now, last = time.monotonic(), self.logged.get((self.uid, part))
        if last is not None and now - last < QUIET:
            return
        logger.error("%s/%s: %s failed", *self.key, part, exc_info=error)
        self.logged.pop((self.uid, part), None)
        self.logged[self.uid, part] = now
        while len(self.logged) > _REMEMBERED:
            self.logged.popitem(last=False)
