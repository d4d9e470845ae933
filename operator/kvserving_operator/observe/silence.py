"""What engines said last, for as long as their agents are silent. Pure.

An agent that cannot be reached says nothing of its engine, which may go on with the fault that it
had: it is not well because nobody hears of it. So what was said last counts for a while, and after
that it is said that nobody knows. A pod that is replaced is another one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kvserving_operator.measure import EngineFacts

KEPT: Final = 600.0
"""Seconds for which what an engine said last counts."""
_MOST_PODS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    facts: EngineFacts
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The last answers of agents, by the uid of their pods."""

    last: Mapping[str, _Heard] = field(default_factory=lambda: MappingProxyType({}))

    def with_answers(
        self, answers: Mapping[str, EngineFacts | None], uids: Mapping[str, str], now: float
    ) -> "Heard":
        """With the answers of this pass; ``uids`` are those of the pods, by name."""
        heard = dict(self.last)
        for name, facts in answers.items():
            if facts is not None:
                heard.pop(uids[name], None)
                heard[uids[name]] = _Heard(facts=_gist(facts), at=now)
        return Heard(last=dict(list(heard.items())[-_MOST_PODS:]))

    def of_silent(
        self, answers: Mapping[str, EngineFacts | None], uids: Mapping[str, str]
    ) -> dict[str, EngineFacts]:
        """What the pods without an answer said last, as far as that is remembered."""
        silent = {name: self.last.get(uids[name]) for name, facts in answers.items() if not facts}
        return {name: heard.facts for name, heard in silent.items() if heard is not None}

    def lost(self, names: Collection[str], uids: Mapping[str, str], now: float) -> frozenset[str]:
        """Those of the silent pods that have been silent for too long to go by what they said."""
        heard = {name: self.last.get(uids[name]) for name in names}
        return frozenset(name for name, last in heard.items() if last and now - last.at >= KEPT)


def _gist(facts: EngineFacts) -> EngineFacts:
    """Without what no condition of the tier is made of."""
    store = facts.store and replace(facts.store, counters={}, recent=None)
    hot = facts.hot and replace(facts.hot, counters={}, recent=None)
    return replace(facts, numbers={}, latencies={}, store=store, hot=hot)
