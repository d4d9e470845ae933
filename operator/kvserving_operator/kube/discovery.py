"""Which APIs of other projects this cluster has: asked for, since they come and go.

An API that is absent is no error: what it would hold is left out and noted, and asked for again.
The right to ask comes with Kubernetes' own role `system:discovery`, which every account has.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from kvserving_operator.kube import errors, paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.kube.transport import Request, Transport

logger = logging.getLogger(__name__)

REFRESH = 15.0
"""Seconds for which an answer holds, whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question(Request):
    """GET of the list of resources that a version of a group has."""

    @property
    def url(self) -> str:
        """Path of the group's version."""
        return f"/apis/{self.resource.group}/{self.resource.version}"


class Discovery:
    """Knows which kinds of `paths.OPTIONAL_CHILDREN` exist, for all workers of a process."""

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = asyncio.Lock()
        self._served: frozenset[Resource] = frozenset()
        self._asked_at: float | None = None

    async def served(self) -> frozenset[Resource]:
        """The optional kinds that exist, at most `REFRESH` seconds old."""
        async with self._lock:
            if self._asked_at is None or self._clock() - self._asked_at >= REFRESH:
                await self._ask()
                # Now, and not when it was asked: a slow server would be asked again at once, by
                # every worker in turn.
                self._asked_at = self._clock()
            return self._served

    async def _ask(self) -> None:
        answers = await asyncio.gather(*(self._has(kind) for kind in paths.OPTIONAL_CHILDREN))
        found = frozenset(
            kind for kind, has in zip(paths.OPTIONAL_CHILDREN, answers, strict=True) if has
        )
        for kind in sorted(map(str, found ^ self._served)):
            logger.info("optional API %s: %s", kind, "there" if kind in map(str, found) else "gone")
        self._served = found

    async def _has(self, kind: Resource) -> bool:
        """Whether the API has `kind`; what was known holds where the server cannot tell."""
        question = _Question(method="GET", verb="get", resource=kind, namespace=None)
        try:
            answer = await self._transport.send(question)
        except errors.NotFoundError:
            return False
        except errors.RequestError as error:
            logger.warning("cannot tell whether %s exists: %s", kind, error)
            return kind in self._served
        return any(item.get("name") == kind.plural for item in answer.get("resources") or ())
