"""LMCache's scheduler side: looks prompts up, decides what the workers load and store.

The rules are those of LMCache's vLLM connector without layer-wise loading: whole chunks only, each
stored once, nothing of the decode phase unless `save_decode_cache`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from kvserving_engine_sim.scheduler.external import Match
from kvserving_engine_sim.scheduler.request import Finish, Request
from kvserving_engine_sim.transfer_config import Kind, Role
from kvserving_engine_sim.workers import messages

_log = logging.getLogger(__name__)


@dataclass
class _Track:
    """Of one request: tokens LMCache has, tokens it was told to have, a load still to be made.

    `looked_up` until the request is admitted: one lookup for each admission, whatever it costs.
    """

    looked_up: bool = False
    found: int = 0
    saved: int = 0
    load: messages.Load | None = None


class TierSource:
    """`client` is LMCache's lookup client; it answers by the workers' minimum."""

    kind = Kind.LMCACHE

    def __init__(self, config: Any, client: Any, role: Role) -> None:
        self._config = config
        self._client = client
        self._saves = role is not Role.CONSUMER
        # The store of engine-patches/sharded-store decides per request, and wants to know when the
        # engine steps.
        self._sharded = hasattr(client, "expect")
        self._tracks: dict[str, _Track] = {}
        self._stale: list[str] = []

    def match(self, request: Request, local: int) -> Match | None:
        """Tokens of the longest stored prefix beyond the local ones; None while it is looked up."""
        track = self._tracks.setdefault(request.request_id, _Track())
        if not track.looked_up and not self._look_up(request, local, track):
            return None
        # vLLM has to compute the last token in any case.
        count = track.found - local - (1 if track.found == request.length else 0)
        if count <= 0 or count < self._config.min_retrieve_tokens:
            return Match()
        return Match(count, source=Kind.LMCACHE)

    def admitted(self, request: Request, match: Match) -> None:
        """The lookup is used up: load what was matched with the first step."""
        name = request.request_id
        self._client.clear_lookup_status(name)
        track = self._tracks.setdefault(name, _Track())
        track.looked_up = False
        track.saved = track.found
        track.load = None
        if match.tokens:
            _log.info("request %s: %d tokens to load from LMCache", name, match.tokens)
            track.load = messages.Load(request.local_cached, track.found)
        elif track.found:
            self._stale.append(name)

    def attach(self, request: Request, sequence: messages.Sequence) -> None:
        """Load once, store every chunk that this step completes."""
        track = self._tracks.get(request.request_id)
        if track is None:
            return
        sequence.load, track.load = track.load, None
        sequence.save = self._save(request, sequence, track)
        needed = max(
            sequence.load.total if sequence.load else 0,
            sequence.save.total if sequence.save else 0,
        )
        if needed:
            sequence.prefix = request.tokens[:needed]

    def rolled_back(self, request: Request) -> None:
        """What lies behind the tokens that did load is stored again once it is computed."""
        track = self._tracks.get(request.request_id)
        if track is not None:
            track.saved = min(track.saved, request.computed)

    def finished(self, request: Request, finish: Finish) -> None:
        """Forget the request, and unpin what was looked up but never used."""
        name = request.request_id
        track = self._tracks.pop(name, None)
        if track is None:
            return
        if self._sharded:
            self._client.cancel_lookup(name)
        if not track.looked_up and not request.admitted:
            # Still being looked up: only asynchronous loading takes more than one call.
            self._client.cancel_lookup(name)
            return
        self._client.clear_lookup_status(name)
        if track.looked_up and track.found:
            self._stale.append(name)

    def stepped(self, tokens: int) -> None:
        """The engine begins a step of so many tokens, or has the results of one for 0."""
        if not self._sharded:
            return
        if tokens:
            self._client.stepped(tokens)
        else:
            self._client.step_ended()

    def stale_lookups(self) -> list[str]:
        """Lookups to unpin."""
        stale, self._stale = self._stale, []
        return stale

    def _look_up(self, request: Request, local: int, track: _Track) -> bool:
        name = request.request_id
        found = self._client.lookup_cache(lookup_id=name)
        if found == -1:
            if self._sharded:
                self._client.expect(name, local, {})
            found = self._client.lookup(request.tokens.tolist(), lookup_id=name)
        if found is None:
            return False
        track.looked_up, track.found = True, found
        return True

    def _save(
        self, request: Request, sequence: messages.Sequence, track: _Track
    ) -> messages.Save | None:
        end = sequence.start + len(sequence.tokens)
        decoding = sequence.start >= len(request.prompt)
        if not self._saves or (decoding and not self._config.save_decode_cache):
            return None
        chunk = self._config.chunk_size
        last = end >= len(request.prompt)
        total = end if last and self._config.save_unfull_chunk else end // chunk * chunk
        skip = track.saved // chunk * chunk
        if total <= max(skip, track.saved):
            return None
        track.saved = total
        return messages.Save(skip, total)
