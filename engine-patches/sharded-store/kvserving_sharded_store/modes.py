"""The mode of each request, fixed at its first lookup. Pure; the scheduler process alone keeps it.

Workers hold no mode: what they do for a request is what the connector metadata of that step says.
So a switch of the setting between two lookups of one request, or between lookup and load, changes
nothing for it, and no step can mix two modes for one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvserving_sharded_store.policy import Decision


@dataclass(slots=True)
class Requests:
    """Decisions of the requests that are under way."""

    _fixed: dict[str, Decision] = field(default_factory=dict)

    def fix(self, request_id: str, decide: Callable[[], Decision]) -> Decision:
        """The decision for a request: the one it got first, else what ``decide`` says now."""
        decision = self._fixed.get(request_id)
        if decision is None:
            decision = self._fixed[request_id] = decide()
        return decision

    def get(self, request_id: str) -> Decision | None:
        """The decision for a request, none before its first lookup."""
        return self._fixed.get(request_id)

    def forget(self, request_id: str) -> None:
        """The request finished, was aborted, or was preempted and starts over."""
        self._fixed.pop(request_id, None)

    def __len__(self) -> int:
        return len(self._fixed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fixed)
