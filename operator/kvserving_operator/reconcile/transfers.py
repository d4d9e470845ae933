"""Looks now and then at how the transfers between prefill and decode end."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kvserving_operator.engines.base import Role
from kvserving_operator.measure import EngineFacts
from kvserving_operator.measure.transfer import TransferHistory, follow
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile.sources import Source
from kvserving_operator.reconcile.stores import asked
from kvserving_operator.status.transfer import Transfers

LOOK: Final = 60.0
"""Seconds between two looks at an object's engines."""
_EARLY: Final = 0.5
"""Seconds by which a look may come before it is due."""
_REMEMBERED: Final = 500
"""Objects that are remembered; of one with ten engines some 20 KiB."""


class TransferWatch:
    """What is remembered of all objects; lost with the process, and found again within minutes."""

    def __init__(
        self, agents: Agents | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agents = agents
        self._clock = clock
        self._seen: OrderedDict[str, tuple[float, TransferHistory]] = OrderedDict()

    async def __call__(
        self,
        uid: str,
        planned: Plan | Refusal,
        observed: Observed,
        *,
        source: Source | None = None,
    ) -> Transfers | None:
        """How they end; None where there are none, or nobody can be asked.

        `source`: who is asked; None: the agents.
        """
        if self._agents is None or not isinstance(planned, Plan):
            return None
        if not any(role.role is Role.PREFILL for role in planned.roles):
            return None
        looked, history = self._seen.get(uid, (None, None))
        if looked is None or self._clock() - looked >= LOOK - _EARLY:
            engines: dict[str, EngineFacts] = {}
            for role in planned.roles:
                found = await asked(source or self._agents, planned, observed, role)
                answers = {} if found is None else found.answers
                engines |= {pod: facts for pod, facts in answers.items() if facts is not None}
            looked = self._clock()
            history = follow(history, engines, looked)
            self._seen[uid] = looked, history
        self._seen.move_to_end(uid)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        left = looked + LOOK - self._clock()
        return Transfers(
            verdict=None if history is None else history.verdict, look_again=max(_EARLY, left)
        )
