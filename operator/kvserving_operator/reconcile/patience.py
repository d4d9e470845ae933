"""A workload's controller gets a moment before it is news that it has not seen a change. Pure.

The generation of a Deployment counts its annotations, whoever writes them: a foreign one would take
a settled role out of Ready for the milliseconds in which its controller looks. Those pass unsaid
where this pass changed nothing; a controller that stays silent is reported all the same.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from kvserving_operator.observe.health import RoleHealth

MOMENT: Final = timedelta(seconds=5)
_REMEMBERED: Final = 5000


class Patience:
    """Since when the controllers of which object's workloads have been silent."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def left(self, uid: str, healths: Iterable[RoleHealth | None], now: datetime) -> float | None:
        """Seconds for which the status stays as it is; None: it says what is seen."""
        if not any(h is not None and h.exists and not h.observed for h in healths):
            self._since.pop(uid, None)
            return None
        since = self._since.setdefault(uid, now)
        while len(self._since) > _REMEMBERED:
            del self._since[next(iter(self._since))]
        left = since + MOMENT - now
        # A clock that was set back does not make it longer.
        return min(left, MOMENT).total_seconds() if left > timedelta(0) else None
