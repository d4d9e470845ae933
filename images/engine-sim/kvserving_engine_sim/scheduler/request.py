"""A request as the engine core holds it, and what becomes of it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from kvserving_engine_sim.kv.model import Sampling, Words
from kvserving_engine_sim.transfer.params import RemotePrefill
from kvserving_engine_sim.transfer_config import Kind


class Phase(StrEnum):
    """Where a request is."""

    WAITING = "waiting"
    LOADING = "loading"
    RUNNING = "running"
    FINISHED = "finished"


class Finish(StrEnum):
    """Why a request ended, in vLLM's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class LoadStage(StrEnum):
    """How far an asynchronous KV load is, in vLLM's words."""

    WAITING_TO_START = "waiting_to_start"
    IN_PROGRESS = "in_progress"
    COMPLETED_WAITING = "completed_waiting"


@dataclass
class Times:
    """Moments of a request on the monotonic clock, in seconds; 0 = not yet."""

    arrived: float = 0.0
    scheduled: float = 0.0
    first_token: float = 0.0
    last_token: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True)
class Delta:
    """News of a request for the front: tokens, and how it ended if it did."""

    request_id: str
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    cached_tokens: int = 0
    transfer_params: Mapping[str, Any] | None = None
    error: str = ""


@dataclass
class Request:
    """One sequence. `tokens` are prompt and output; `computed` of them have their KV in `blocks`.

    `verified` of them have been read back whole by the workers. `remote` is where its KV waits,
    until that is fetched or given up. `admitted` says that its lookups have been counted and its
    sources told, once per life and preemption.
    """

    request_id: str
    prompt: Words
    max_tokens: int
    sampling: Sampling
    stop: tuple[bytes, ...] = ()
    min_tokens: int = 0
    remote: RemotePrefill | None = None
    hold_for_decode: bool = False

    phase: Phase = Phase.WAITING
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    computed: int = 0
    verified: int = 0
    local_cached: int = 0
    external_cached: int = 0
    source: Kind | None = None
    admitted: bool = False
    load_stage: LoadStage | None = None
    preemptions: int = 0
    times: Times = field(default_factory=Times)
    _tokens: Words | None = None

    @property
    def tokens(self) -> Words:
        """Prompt and output so far."""
        if self._tokens is None or len(self._tokens) != self.length:
            self._tokens = np.concatenate([self.prompt, np.array(self.output, dtype=np.uint16)])
        return self._tokens

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def cached(self) -> int:
        """Prompt tokens that were not computed here."""
        return self.local_cached + self.external_cached

    @property
    def reported_cached(self) -> int:
        """Of these, what vLLM tells the client: tokens over NIXL are not among them."""
        return self.local_cached + (self.external_cached if self.source is Kind.LMCACHE else 0)

    def ended(self, max_model_len: int, eos: int) -> Finish | None:
        """Why the last output token ends the request, if it does."""
        generated = len(self.output)
        if generated >= self.min_tokens and (self.output[-1] == eos or self._stopped()):
            return Finish.STOP
        if generated >= self.max_tokens or self.length >= max_model_len:
            return Finish.LENGTH
        return None

    def _stopped(self) -> bool:
        if not self.stop:
            return False
        longest = max(map(len, self.stop))
        tail = bytes(token for token in self.output[-longest:] if token < 256)
        return any(tail.endswith(text) for text in self.stop)
