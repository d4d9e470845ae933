"""What a scheduling pass counted, for the metrics (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvserving_engine_sim.scheduler.request import Finish, LoadStage, Request


@dataclass
class Stats:
    """Counts since the last time they were taken, and the state now."""

    running: int = 0
    waiting: int = 0
    deferred: int = 0
    loading: dict[LoadStage, int] = field(default_factory=dict)
    usage: float = 0.0

    local_queries: int = 0
    local_hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    external_hits_by_nixl: int = 0
    preemptions: int = 0
    generated_tokens: int = 0
    steps: list[int] = field(default_factory=list)
    first_tokens: list[Request] = field(default_factory=list)
    token_gaps: list[float] = field(default_factory=list)
    finished: list[tuple[Request, Finish]] = field(default_factory=list)
