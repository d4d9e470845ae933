"""Whether the store in the engines keeps what their image promises, from their agents' facts. Pure.

An engine whose tier is closed serves on and computes what it would have loaded: this is news about
the tier, not about the role. Messages hold no counts and no times.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kvserving_operator.api.conditions import Reason
from kvserving_operator.measure import ControlFacts, EngineFacts

FRESH: Final = 60.0
"""Seconds after which a state says nothing about now."""

_WORD: Final = re.compile(r"[A-Za-z0-9]{1,40}")
_PASSING: Final = frozenset({"Starting", "Shutdown"})
_CLOSED: Final[Mapping[str, tuple[Reason, str]]] = {
    "AttentionMismatch": (
        Reason.ATTENTION_MISMATCH,
        "spec.model.attention is not what the model has",
    ),
    "KVRoundTripMismatch": (
        Reason.KV_ROUND_TRIP_MISMATCH,
        "other bytes came back than were stored",
    ),
    "UnknownVersions": (
        Reason.FEATURE_MISSING,
        "its store does not know the vLLM and LMCache of the image",
    ),
    "Stock": (
        Reason.FEATURE_MISSING,
        "its store does not know the vLLM and LMCache of the image, whose own client serves",
    ),
    "LayoutUnknown": (Reason.TIER_CLOSED, "its KV cannot be copied exactly"),
    "BadConfiguration": (Reason.TIER_CLOSED, "an address or a size cannot work, see its log"),
    "NoGroup": (Reason.TIER_CLOSED, "its ranks have no process group in common"),
    "AnotherRank": (Reason.TIER_CLOSED, "one of its ranks is closed, see its log"),
    "Unhealthy": (Reason.TIER_CLOSED, "LMCache says that it is not healthy"),
}
"""What the package may say in ``closed`` (docs/sharded-store.md, "Closed")."""
REASONS: Final = frozenset(
    {reason for reason, _ in _CLOSED.values()} | {Reason.AGENT_UNREACHABLE, Reason.FEATURE_MISSING}
)
"""Of all faults that engines may tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFault:
    """What keeps an engine from using the tier."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """The stores of all engines that were asked."""

    faults: tuple[StoreFault, ...] = ()
    waiting: bool = False
    """Some engine is about to say how it is: it is worth asking again soon."""


def read_stores(
    promises: frozenset[str],
    answers: Mapping[str, EngineFacts | None],
    *,
    outdated: Collection[str] = (),
    lost: Collection[str] = (),
) -> StoreHealth:
    """The health of the stores, from the facts of each ready pod.

    None: nothing was ever heard of its agent, of which nothing follows; the next pass asks again.
    Pods that are ``outdated`` run an earlier image, which promised what it did: they break no
    promise of now. Those that are ``lost`` said this too long ago: a fault may be over.
    """
    faults: list[StoreFault] = []
    waiting = False
    for pod, facts in sorted(answers.items()):
        if facts is None or facts.store is None:
            continue
        if is_passing(facts.store):
            waiting = waiting or pod not in lost
        else:
            due = frozenset[str]() if pod in outdated else promises
            found = list(_faults(pod, due, facts.capabilities, facts.store))
            faults.extend([_unreachable(pod, found[0])] if found and pod in lost else found)
    # What is known comes before what is not.
    faults.sort(key=lambda fault: fault.reason is Reason.AGENT_UNREACHABLE)
    return StoreHealth(faults=tuple(faults), waiting=waiting)


def _unreachable(pod: str, last: StoreFault) -> StoreFault:
    what = f"the agent of pod {pod} does not answer any more; the last that it said: {last.message}"
    return StoreFault(reason=Reason.AGENT_UNREACHABLE, message=what)


def is_passing(state: ControlFacts) -> bool:
    """Whether the port behind it is about to say how it is: it starts, or was just not heard."""
    if state.closed in _PASSING:
        return True
    if state.start_id is None or state.age_seconds is None:
        return state.last_error in (None, "Timeout")
    return state.age_seconds > FRESH


def _faults(
    pod: str, promises: frozenset[str], capabilities: frozenset[str], state: ControlFacts
) -> Iterator[StoreFault]:
    after = "its tier is closed, it computes and serves"
    if state.start_id is None:
        what = f"pod {pod} has no store (nobody answers as one on port 9096): {after}"
        yield StoreFault(reason=Reason.FEATURE_MISSING, message=what)
        return
    closed = state.closed
    if closed is not None:
        word = closed if _WORD.fullmatch(closed) else "an unreadable reason"
        reason, why = _CLOSED.get(closed, (Reason.TIER_CLOSED, "see docs/sharded-store.md"))
        yield StoreFault(reason=reason, message=f"pod {pod}: {why} ({word}): {after}")
        return
    if missing := sorted(promises - capabilities):
        what = f"pod {pod} lacks {', '.join(missing)}, which spec.engine.features promises"
        yield StoreFault(reason=Reason.FEATURE_MISSING, message=what)
