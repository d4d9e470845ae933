"""The scheduler's side of a lookup: what is there, is it worth loading, is it here. Pure.

Three steps, none of which blocks: every rank says how much it could bring (*probe*), the hit of the
shortest is decided about, and only if it is to be loaded every rank brings its share (*fetch*) and
says how much has arrived. What is told to the engine at the end is the minimum of what has arrived.
A rank that does not answer costs one deadline, after which the request counts as a miss.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from kvserving_sharded_store.policy import Decision, Mode

_SLACK: Final = 0.25
"""Seconds that answers may take on their way beyond what the ranks were given."""


class Sender(Protocol):
    """The way to all ranks. Does not wait, and is called under a lock: must not call back."""

    def probe(self, name: str, serial: int, prompt: Prompt, seconds: float) -> None:
        """Ask every rank how much of a prompt it could bring."""

    def fetch(self, name: str, serial: int, tokens: int, seconds: float) -> None:
        """Ask every rank to bring its share of so many leading tokens."""

    def drop(self, name: str, serial: int) -> None:
        """Tell every rank to give back what it holds for a lookup and everything before it."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is looked up.

    Attributes:
        hashes: Of each whole chunk's tokens and all before them.
        chunk_tokens: Tokens of a chunk.
        tags: What keeps requests of one model apart, see ``keys.realm``.
        computed: Leading tokens the engine has by itself.
    """

    hashes: Sequence[bytes]
    chunk_tokens: int
    tags: dict[str, str] = field(default_factory=dict)
    computed: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of all whole chunks."""
        return len(self.hashes) * self.chunk_tokens


class Step(Enum):
    """Where a lookup stands."""

    PROBING = auto()
    FETCHING = auto()
    DONE = auto()


@dataclass(slots=True)
class Inquiry:
    """One lookup.

    Attributes:
        serial: Tells it from an earlier one of the same request.
        prompt: What is looked up.
        step: Where it stands.
        by: Monotonic second by which all ranks must have answered.
        began: Monotonic second of the first question.
        answers: By rank, in the present step.
        found: Tokens of the hit.
        decision: What became of it; none while probing.
        tokens: What the engine is told in the end.
        late: Whether somebody did not answer in time.
        name: The request.
        decided: Monotonic second at which the fetch began, none before.
        read: Bytes that the ranks' instances have sent for it.
    """

    serial: int
    prompt: Prompt
    step: Step
    by: float
    began: float
    answers: dict[int, int] = field(default_factory=dict)
    found: int = 0
    decision: Decision | None = None
    tokens: int = 0
    late: bool = False
    name: str = ""
    decided: float | None = None
    read: int = 0


class Inquiries:
    """All lookups under way. Safe to use from several threads.

    Args:
        ranks: How many must answer.
        send: The way to them.
        decide: Says what becomes of a hit of so many tokens that the engine does not have.
        lookup_seconds: Most a probe may take.
        load_seconds: Most a fetch may take, given the decision.
        finished: Told of each lookup once it is done; must not wait.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        ranks: int,
        send: Sender,
        decide: Callable[[str, int], Decision],
        lookup_seconds: float,
        load_seconds: Callable[[int], float],
        finished: Callable[[Inquiry], None] = lambda _done: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._send = send
        self._decide = decide
        self._lookup_seconds = lookup_seconds
        self._load_seconds = load_seconds
        self._finished = finished
        self._now = now
        self._changed = threading.Condition()
        self._under_way: dict[str, Inquiry] = {}
        self._taken: dict[str, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, name: str, prompt: Prompt) -> Inquiry:
        """Look a prompt up; a lookup of the same name is given up."""
        with self._changed:
            self._forget(name)
            self._serial += 1
            now = self._now()
            by = now + self._lookup_seconds
            made = Inquiry(self._serial, prompt, Step.PROBING, by, now, name=name)
            self._under_way[name] = made
            if not prompt.hashes:
                self._end(made, self._decide(name, 0), 0)
                return made
            self._send.probe(name, made.serial, prompt, self._lookup_seconds)
            made.by += _SLACK
            return made

    def answered(
        self, name: str, serial: int, rank: int, tokens: int, *, here: bool, read: int = 0
    ) -> None:
        """A rank's answer; one that comes too late, or twice, counts for nothing.

        Args:
            name: The request.
            serial: The lookup.
            rank: Who answers.
            tokens: What it could bring, or what has arrived.
            here: Which of both.
            read: Bytes of it that came from instances.
        """
        with self._changed:
            asked = self._under_way.get(name)
            wanted = Step.FETCHING if here else Step.PROBING
            if asked is None or asked.serial != serial or asked.step is not wanted:
                return
            asked.answers[rank] = tokens
            asked.read += read
            if len(asked.answers) < self._ranks:
                return
            agreed = min(asked.answers.values())
            if here:
                self._end(asked, asked.decision, min(agreed, asked.found))
            else:
                self._probed(name, asked, agreed)

    def _probed(self, name: str, asked: Inquiry, found: int) -> None:
        asked.found = found
        asked.decision = self._decide(name, max(0, found - asked.prompt.computed))
        if asked.decision.mode is Mode.BYPASS:
            self._send.drop(name, asked.serial)
            self._end(asked, asked.decision, 0)
            return
        seconds = self._load_seconds(asked.decision.tokens)
        asked.decided = self._now()
        asked.step, asked.by = Step.FETCHING, asked.decided + seconds + _SLACK
        asked.answers.clear()
        self._send.fetch(name, asked.serial, found, seconds)

    def _end(self, asked: Inquiry, decision: Decision | None, tokens: int) -> None:
        asked.step, asked.decision, asked.tokens = Step.DONE, decision, tokens
        self._changed.notify_all()
        self._finished(asked)

    def get(self, name: str) -> Inquiry | None:
        """The lookup of a request, with overdue answers counted as none."""
        with self._changed:
            asked = self._under_way.get(name)
            if asked is not None and asked.step is not Step.DONE and self._now() > asked.by:
                asked.late = True
                self._send.drop(name, asked.serial)
                self._end(asked, asked.decision, 0)
            return asked

    def wait(self, name: str, seconds: float) -> Inquiry | None:
        """Like ``get``, after waiting so long at most for it to be done."""
        until = self._now() + seconds
        while True:
            asked = self.get(name)
            if asked is None or asked.step is Step.DONE:
                return asked
            if self._now() >= until:
                return asked
            with self._changed:
                done = self._changed.wait_for(
                    lambda asked=asked: asked.step is Step.DONE,  # type: ignore[misc]
                    timeout=max(0.0, min(until, asked.by + 0.001) - self._now()),
                )
            if done:
                return asked

    def taken(self, name: str) -> None:
        """The engine has scheduled the request: what was brought for it is the workers' affair.

        Until it ends: it may never be run, when another connector's bytes do not come.
        """
        with self._changed:
            asked = self._under_way.pop(name, None)
            if asked is not None and asked.decided is not None:
                self._taken[name] = asked.serial

    def drop(self, name: str) -> None:
        """The request ended or was aborted: all ranks give back what they hold for it."""
        with self._changed:
            self._forget(name)

    def _forget(self, name: str) -> None:
        taken = self._taken.pop(name, None)
        before = self._under_way.pop(name, None)
        if before is not None and before.prompt.hashes:
            self._send.drop(name, before.serial)
        elif taken is not None:
            self._send.drop(name, taken)

    @property
    def owed_tokens(self) -> int:
        """Tokens that are being fetched at present."""
        with self._changed:
            return sum(
                asked.found - asked.prompt.computed
                for asked in self._under_way.values()
                if asked.step is Step.FETCHING
            )
