"""Looks now and then at engines that are ready: whether they work, and their agents live."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kvserving_operator.engines.base import Role
from kvserving_operator.measure import EngineFacts
from kvserving_operator.measure.vitals import VitalsHistory, follow
from kvserving_operator.observe.agents import Agents
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.model import Plan, Refusal
from kvserving_operator.reconcile.sources import Source
from kvserving_operator.reconcile.stores import asked
from kvserving_operator.status.vitals import Vitals

LEAST: Final = 50.0
"""Seconds between two looks, in passes that come anyway: no pass is made for a look. They come once
a minute where there is a tier, prefill or HOT pages, and with each resync where there is none; in
such a pass others have just asked the same engines, and the answers are remembered."""
_REMEMBERED: Final = 500
"""Objects that are remembered; of one with ten engines some 20 KiB."""


class VitalsWatch:
    """What is remembered of all objects; lost with the process, and found again within minutes."""

    def __init__(
        self, agents: Agents | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._agents = agents
        self._clock = clock
        self._seen: OrderedDict[str, tuple[float, VitalsHistory]] = OrderedDict()

    async def __call__(
        self,
        uid: str,
        planned: Plan | Refusal,
        observed: Observed,
        *,
        source: Source | None = None,
    ) -> Vitals:
        """What is told of the engines, by role.

        `source`: who is asked; None: the agents.
        """
        if self._agents is None or not isinstance(planned, Plan):
            return Vitals()
        looked, history = self._seen.get(uid, (None, None))
        pods = _pods(planned, observed)
        if looked is None or self._clock() - looked >= LEAST:
            engines, uids = await _look(source or self._agents, planned, observed)
            # Where nobody answers nothing follows, and the next pass asks again; who is silent is
            # left alone all the same (observe/silences.py).
            if engines:
                now = self._clock()
                history = follow(history, engines, uids, now)
                self._remember(uid, now, history)
        if history is None:
            return Vitals()
        now = self._clock()
        signs = {role: tuple(history.told(uids, now)) for role, uids in pods.items()}
        return Vitals(signs=signs, unknown=history.unknown(now))

    def _remember(self, uid: str, now: float, history: VitalsHistory) -> None:
        self._seen[uid] = now, history
        self._seen.move_to_end(uid)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def _pods(planned: Plan, observed: Observed) -> dict[Role, dict[str, str]]:
    """The uids of each role's pods, by name."""
    found = {}
    for role in planned.roles:
        metadata = (pod["metadata"] for pod in observed.pods_of(role.role.value))
        found[role.role] = {each["name"]: each["uid"] for each in metadata}
    return found


async def _look(
    source: Source, planned: Plan, observed: Observed
) -> tuple[dict[str, EngineFacts], dict[str, str]]:
    """What the ready pods of all roles say, and their uids."""
    engines, uids = dict[str, EngineFacts](), dict[str, str]()
    for role in planned.roles:
        found = await asked(source, planned, observed, role)
        if found is not None:
            engines |= {pod: facts for pod, facts in found.answers.items() if facts is not None}
            uids |= found.uids
    return engines, uids
