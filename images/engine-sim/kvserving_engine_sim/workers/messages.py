"""What the engine core and the workers tell each other: plain data, pickled over a pipe.

Workers keep no state of a request; each step carries all they need.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvserving_engine_sim.kv.model import Sampling, Words


@dataclass(frozen=True)
class Load:
    """Load the KV of tokens `cached`..`total` from the tier before computing."""

    cached: int
    total: int


@dataclass(frozen=True)
class Save:
    """Store the KV of tokens `skip`..`total` in the tier after computing."""

    skip: int
    total: int


@dataclass
class Sequence:
    """One request's part of a step: compute `tokens` at positions from `start` on.

    `blocks` hold the KV. `verify_from` is the first position whose full entries this request has
    not read back yet. `sample` asks for the next token. `prefix` are the tokens from the first one
    on, as far as `load` and `save` need them.
    """

    request_id: str
    start: int
    tokens: Words
    blocks: list[int]
    verify_from: int = 0
    sample: Sampling | None = None
    generated: int = 0
    load: Load | None = None
    save: Save | None = None
    prefix: Words | None = None


@dataclass
class Step:
    """One forward pass. It takes `seconds` at least; `unpin` are lookups that nobody needs."""

    sequences: list[Sequence] = field(default_factory=list)
    seconds: float = 0.0
    unpin: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    """What one rank did: sampled tokens, and how many tokens are there after a load that failed."""

    tokens: dict[str, int] = field(default_factory=dict)
    failed_loads: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """A worker is up."""

    rank: int


@dataclass(frozen=True)
class Broken:
    """A worker cannot go on; the engine ends."""

    rank: int
    error: str
