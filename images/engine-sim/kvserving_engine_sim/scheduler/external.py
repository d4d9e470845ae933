"""KV from outside the engine, as the scheduler sees it: the sources in their order of preference.

vLLM's MultiConnector: every source is asked, the first that has tokens loads them, all may save.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvserving_engine_sim.scheduler.request import Finish, Request
from kvserving_engine_sim.transfer_config import Kind
from kvserving_engine_sim.workers import messages


@dataclass(frozen=True)
class Match:
    """Tokens that a source can load beyond the local ones; `background` = between steps."""

    tokens: int = 0
    background: bool = False
    source: Kind | None = None


@dataclass(frozen=True)
class Hold:
    """A finished request's `blocks` stay held for another engine; the client gets `params`."""

    params: Mapping[str, Any]
    blocks: tuple[int, ...]


class Source(Protocol):
    """One KV connector's scheduler side. Called from the engine core's thread only."""

    kind: Kind

    def match(self, request: Request, local: int) -> Match | None:
        """What could be loaded; None while a lookup is under way. Asked again, same answer."""

    def admitted(self, request: Request, match: Match) -> None:
        """The request has blocks for the matched tokens (of this source, else 0)."""

    def attach(self, request: Request, sequence: messages.Sequence) -> None:
        """Add what the workers have to load and save in this step."""

    def rolled_back(self, request: Request) -> None:
        """Only `request.computed` tokens have right KV: a load failed."""

    def finished(self, request: Request, finish: Finish) -> Hold | None:
        """The request ended, at any point of its life; its blocks are still with it."""

    def stepped(self, tokens: int) -> None:
        """The engine begins a step of so many tokens, or has the results of one for 0."""

    def stale_lookups(self) -> list[str]:
        """Lookups whose pins nobody will use any more, once each."""


class Sources:
    """All sources of an engine."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def match(self, request: Request, local: int) -> Match | None:
        """The first source's tokens; None while one of them is still looking."""
        best = Match()
        for source in self._sources:
            match = source.match(request, local)
            if match is None:
                return None
            if match.tokens > 0 and not best.tokens:
                best = match
        return best

    def admitted(self, request: Request, match: Match) -> None:
        """Tell every source how many of its tokens will be loaded."""
        for source in self._sources:
            chosen = match.source is source.kind
            source.admitted(request, match if chosen else Match())

    def attach(self, request: Request, sequence: messages.Sequence) -> None:
        """Let every source add its work to the step."""
        for source in self._sources:
            source.attach(request, sequence)

    def rolled_back(self, request: Request) -> None:
        """A load failed."""
        for source in self._sources:
            source.rolled_back(request)

    def finished(self, request: Request, finish: Finish) -> Hold | None:
        """At most one source holds the blocks."""
        holds = [hold for source in self._sources if (hold := source.finished(request, finish))]
        return holds[0] if holds else None

    def stepped(self, tokens: int) -> None:
        """Tell every source."""
        for source in self._sources:
            source.stepped(tokens)

    def stale_lookups(self) -> list[str]:
        """Of all sources."""
        return [lookup for source in self._sources for lookup in source.stale_lookups()]
