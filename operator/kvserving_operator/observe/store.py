"""Whether the store in the engines keeps what their image promises, from their agents' facts. Pure.

An engine whose tier is closed serves on and computes what it would have loaded: this is news about
the tier, not about the role. Messages hold no counts and no times.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvserving_operator.api.conditions import Reason

Facts = Mapping[str, Any]
"""The answer of an agent (kvserving_agent/facts.py)."""
_READ: Final = ("startId", "closed", "ageSeconds", "lastError")
_MOST_WORDS: Final = 64
_LONGEST_WORD: Final = 80
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


def gist(facts: Facts) -> Facts:
    """What is read of an answer: it is kept for a while, and may be large and anything."""
    listed, state = facts.get("capabilities"), facts.get("store")
    listed = listed if isinstance(listed, list) else []
    words = [word[:_LONGEST_WORD] for word in listed if isinstance(word, str)]
    return {
        "capabilities": words[:_MOST_WORDS],
        "store": {field: _plain(state.get(field)) for field in _READ}
        if isinstance(state, dict)
        else None,
    }


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value[:_LONGEST_WORD]
    return value if isinstance(value, float) or (isinstance(value, int) and value < 1e12) else None


def read_stores(
    promises: frozenset[str],
    answers: Mapping[str, Facts | None],
    *,
    outdated: Collection[str] = (),
) -> StoreHealth:
    """The health of the stores, from the facts of each ready pod.

    None: its agent is silent, of which nothing follows; the next pass asks again. Pods that are
    ``outdated`` run an earlier image, which promised what it did: they break no promise of now.
    """
    faults: list[StoreFault] = []
    waiting = False
    for pod, facts in sorted(answers.items()):
        state = None if facts is None else facts.get("store")
        if facts is None or not isinstance(state, dict):
            continue
        if _is_passing(state):
            waiting = True
        else:
            due = frozenset[str]() if pod in outdated else promises
            faults.extend(_faults(pod, due, facts.get("capabilities"), state))
    return StoreHealth(faults=tuple(faults), waiting=waiting)


def _is_passing(state: Mapping[str, Any]) -> bool:
    # What is compared may be anything, also what no set can hold.
    if state.get("closed") in tuple(_PASSING):
        return True
    age = state.get("ageSeconds")
    if state.get("startId") is None or not isinstance(age, int | float):
        return state.get("lastError") in (None, "Timeout")
    return age > FRESH


def _faults(
    pod: str, promises: frozenset[str], capabilities: object, state: Mapping[str, Any]
) -> Iterator[StoreFault]:
    after = "its tier is closed, it computes and serves"
    if state.get("startId") is None:
        what = f"pod {pod} has no store (nobody answers as one on port 9096): {after}"
        yield StoreFault(reason=Reason.FEATURE_MISSING, message=what)
        return
    closed = state.get("closed")
    if isinstance(closed, str):
        word = closed if _WORD.fullmatch(closed) else "an unreadable reason"
        reason, why = _CLOSED.get(closed, (Reason.TIER_CLOSED, "see docs/sharded-store.md"))
        yield StoreFault(reason=reason, message=f"pod {pod}: {why} ({word}): {after}")
        return
    listed = capabilities if isinstance(capabilities, list) else []
    present = {word for word in listed if isinstance(word, str)}
    if missing := sorted(promises - present):
        what = f"pod {pod} lacks {', '.join(missing)}, which spec.engine.features promises"
        yield StoreFault(reason=Reason.FEATURE_MISSING, message=what)
