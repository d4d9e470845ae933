"""What PrefillReady and DecodeReady say of engines that are ready and not well. Pure.

The condition stays True: it is about replicas that are ready, which probes decide. What agents
conclude is told beside that, by reason and message, for people to act on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kvserving_operator.api.conditions import Condition, ConditionStatus, Reason
from kvserving_operator.engines.base import Role
from kvserving_operator.measure.vitals import Sign
from kvserving_operator.observe.store import StoreFault

_TOLD: Final = {
    Sign.HUNG: (
        Reason.ENGINE_HUNG,
        "the engine in pod {pod} has requests and gets nothing done; its probe passes all the same",
    ),
    Sign.RESTARTS: (
        Reason.AGENT_RESTARTING,
        "the agent in pod {pod} ends again and again, see its log; the engine serves",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What a pass knows of engines that are ready. The default: nothing."""

    signs: Mapping[Role, tuple[tuple[Sign, str], ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By role: what is wrong, and the pod; the gravest first."""
    unknown: frozenset[Sign] = frozenset(Sign)
    """Of what nobody can say yet that it is not so."""


def faults_of(vitals: Vitals, role: Role, sign: Sign) -> Iterator[StoreFault]:
    """What is told of a role, one fault a pod."""
    reason, text = _TOLD[sign]
    for shown, pod in vitals.signs.get(role, ()):
        if shown is sign:
            yield StoreFault(reason=reason, message=text.format(pod=pod))


def stands(before: Condition | None, vitals: Vitals, generation: int) -> bool:
    """Whether what was told before is not contradicted: the operator may be a new one."""
    if before is None or before.observed_generation != generation:
        return False
    unknown = {_TOLD[sign][0] for sign in vitals.unknown}
    return before.status is ConditionStatus.TRUE and before.reason in unknown
