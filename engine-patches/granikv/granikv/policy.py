"""What is worth a slab: admission that waits until it pays, promotion, and the eviction order.

Pure decisions over numbers; each carries its reason.  Gains come from a cost table
(`granikv.dispatch`) as microseconds that one layer's attention saves per step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol

GainPerStep = Callable[[float, int], float]
"""(requests n, prefix tokens) -> microseconds saved per layer and step; never negative."""


class Verdict(StrEnum):
    """Where a prefix belongs now."""

    HOT = "hot"
    DEFER = "defer"  # COLD for now, asked again at a later step
    COLD = "cold"  # cannot become HOT as it is


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the policies see of a tree node.  Times are in the caller's unit."""

    length: int
    refs: int
    hits: float
    last_use: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Admission:
    """Promote a prefix when enough requests run on it and the copy is paid back soon.

    `copy_us_per_token` is K and V of one token in one layer, 0.0027 us measured on H200
    (8,192 tokens in 2 x 10.9 us), so that a promotion at n = 256 is repaid within a step.
    """

    gain: GainPerStep
    min_refs: int = 2
    min_tokens: int = 64
    copy_us_per_token: float = 0.0027
    repay_steps: float = 64.0

    def decide(self, node: Candidate) -> Decision:
        """HOT, DEFER or COLD for this node as it is now."""
        if node.length < self.min_tokens:
            return Decision(Verdict.COLD, f"{node.length} tokens are fewer than {self.min_tokens}")
        if node.refs < self.min_refs:
            return Decision(Verdict.DEFER, f"{node.refs} running requests share it")
        gain = self.gain(float(node.refs), node.length)
        cost = self.copy_us_per_token * node.length
        if gain <= 0.0:
            return Decision(Verdict.DEFER, f"n*Lp = {node.refs * node.length} does not pay yet")
        if cost / gain > self.repay_steps:
            return Decision(Verdict.DEFER, f"the copy is repaid only after {cost / gain:.0f} steps")
        return Decision(Verdict.HOT, f"saves {gain:.1f} us a layer and step, costs {cost:.1f} once")


class EvictionPolicy(Protocol):
    """Chooses which idle slabs make room for a newcomer."""

    @property
    def name(self) -> str:
        """As settings and metrics call it."""

    def cost(self, victims: Sequence[Candidate]) -> tuple[float, float]:
        """What losing all of these costs; the cheapest contiguous window goes."""

    def admits(self, newcomer: Candidate, victims: Sequence[Candidate]) -> bool:
        """Whether the newcomer is worth more than what would go."""


@dataclass(frozen=True, slots=True)
class LruEviction:
    """The window whose most recent use is the oldest; every newcomer is admitted.  Baseline."""

    name: str = "lru"

    def cost(self, victims: Sequence[Candidate]) -> tuple[float, float]:
        """Latest use, then slots lost."""
        return (max((v.last_use for v in victims), default=-inf), sum(v.length for v in victims))

    def admits(self, newcomer: Candidate, victims: Sequence[Candidate]) -> bool:
        """Always: the newcomer is the most recently used."""
        return newcomer.refs > 0 or not victims


@dataclass(frozen=True, slots=True)
class HotnessEviction:
    """The window that saves least: sum of decayed hits x gain per step; LRU on ties.

    The decayed hits stand in for the number of requests that will share the prefix when it is
    wanted again, at least `min_refs` of them, without which a slab has no gain at all.
    """

    gain: GainPerStep
    min_refs: float = 2.0
    name: str = "hotness"

    def worth(self, node: Candidate) -> float:
        """Expected saving of one node, in hits x microseconds."""
        return node.hits * self.gain(max(node.hits, self.min_refs), node.length)

    def cost(self, victims: Sequence[Candidate]) -> tuple[float, float]:
        """Saving lost, then latest use."""
        return (sum(map(self.worth, victims)), max((v.last_use for v in victims), default=-inf))

    def admits(self, newcomer: Candidate, victims: Sequence[Candidate]) -> bool:
        """Only if the newcomer saves more than the victims together."""
        return not victims or self.worth(newcomer) > sum(map(self.worth, victims))
