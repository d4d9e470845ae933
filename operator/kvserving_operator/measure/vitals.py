"""What no probe sees of an engine: that it hangs, and that its agent ends again and again. Pure.

The agents say both; what is decided here is for how long it is told. It is meant to be read by
people, and every change of it is a write, so it moves slowly: it is told at once, because the agent
has waited for a minute itself, and for ten minutes after it was seen last; each time that it comes
again after that twice as long, an hour at most. An engine that has started anew, or a pod that was
replaced, is another one, and what was said of the one before is over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from kvserving_operator.measure.facts import EngineFacts

WINDOW: Final = 900.0
"""Seconds within which ends of an agent count together; the alert has the same."""
MOST_ENDS: Final = 2
"""Ends of an agent within them that nobody need know of."""
HOLD: Final = 600.0
"""Seconds for which something is told after it was seen last, at first."""
LONGEST_HOLD: Final = 3600.0
FORGOTTEN: Final = 3 * LONGEST_HOLD
"""Seconds after which something that comes again is told as if it were new."""


class Sign(StrEnum):
    """What is wrong with an engine that is ready."""

    HUNG = "Hung"
    RESTARTS = "Restarts"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One sign of one pod."""

    last: float
    """Monotonic second of the last look that showed it."""
    hold: float = HOLD
    start_id: str | None = None
    """Of the engine that showed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    """What is remembered of one pod."""

    uid: str
    heard: float
    """Monotonic second of its last answer."""
    lives: tuple[tuple[float, int], ...] = ()
    """When which life of its agent answered, in the looks of one window."""
    signs: Mapping[Sign, _Seen] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalsHistory:
    """What is remembered between looks; bounded by the pods and the looks of one window."""

    began: float
    """Monotonic second of the first look."""
    pods: Mapping[str, _Pod] = field(default_factory=lambda: MappingProxyType({}))

    def told(self, uids: Mapping[str, str], now: float) -> Iterator[tuple[Sign, str]]:
        """What is told of these pods (uids by name): the gravest first, then by name."""
        for sign in Sign:
            for name in sorted(uids.keys() & self.pods.keys()):
                pod = self.pods[name]
                seen = pod.signs.get(sign)
                if pod.uid == uids[name] and seen is not None and now - seen.last < seen.hold:
                    yield sign, name

    def unknown(self, now: float) -> frozenset[Sign]:
        """Of what the history is too short to tell that it is not so."""
        return frozenset({Sign.RESTARTS} if now - self.began < WINDOW else ())


def follow(
    before: VitalsHistory | None,
    engines: Mapping[str, EngineFacts],
    uids: Mapping[str, str],
    now: float,
) -> VitalsHistory:
    """The history with one more look.

    Args:
        before: Of the look before; None: this is the first.
        engines: What engines said, by pod; of those that answered.
        uids: Of their pods, by name.
        now: Monotonic second.
    """
    known = before or VitalsHistory(began=now)
    pods = {name: pod for name, pod in known.pods.items() if now - pod.heard < FORGOTTEN}
    for name, facts in engines.items():
        old = pods.get(name)
        if old is None or old.uid != uids[name]:
            old = _Pod(uid=uids[name], heard=now)
        pods[name] = _heard(old, facts, now)
    return replace(known, pods=pods)


def _heard(pod: _Pod, facts: EngineFacts, now: float) -> _Pod:
    lives = pod.lives
    if facts.lives is not None:
        lives = (*(life for life in lives if now - life[0] < WINDOW), (now, facts.lives))
    shown = {Sign.HUNG: facts.hung is True, Sign.RESTARTS: _ends(lives) > MOST_ENDS}
    signs = dict(pod.signs)
    if _is_another(signs.get(Sign.HUNG), facts):
        del signs[Sign.HUNG]
    for sign, is_shown in shown.items():
        if is_shown:
            signs[sign] = _again(signs.get(sign), facts, now)
    kept = {sign: seen for sign, seen in signs.items() if now - seen.last < FORGOTTEN}
    return replace(pod, heard=now, lives=lives, signs=kept)


def _ends(lives: tuple[tuple[float, int], ...]) -> int:
    """How many lives ended between the looks; in a container that is new they count from one."""
    return sum(
        after - before if after >= before else after - 1
        for (_, before), (_, after) in pairwise(lives)
    )


def _is_another(seen: _Seen | None, facts: EngineFacts) -> bool:
    """Whether an engine runs now that is not the one which was seen."""
    return seen is not None and facts.start_id is not None and facts.start_id != seen.start_id


def _again(seen: _Seen | None, facts: EngineFacts, now: float) -> _Seen:
    if seen is None:
        return _Seen(last=now, start_id=facts.start_id)
    was_over = now - seen.last >= seen.hold
    hold = min(LONGEST_HOLD, 2 * seen.hold) if was_over else seen.hold
    return replace(seen, last=now, hold=hold)
