"""The HOT fraction while serving: what it should be, and getting there between steps.

`propose` is pure: signals of one window in, a percentage and its reason out.  `FpController`
adds what time adds (a proposal must repeat, a change must rest) and executes through `Upkeep`,
which copies under a cap and commits or rolls back.
"""

from dataclasses import dataclass, field

from granikv.errors import BadSizeError, RelocationError
from granikv.upkeep import Upkeep

MIN_PERCENT, MAX_PERCENT = 5, 80


@dataclass(frozen=True, slots=True)
class Signals:
    """One window of observations.  Slots unless said."""

    total: int
    hot_size: int
    hot_used: int
    hot_wanted: int  # k * Lp: live prefixes that are HOT or would pay if they were
    hot_failed: int  # asked of HOT in vain in this window
    cold_low: int  # least COLD headroom seen in this window
    cold_failed: int  # COLD allocations that failed in this window (a count)
    preempted: int = 0  # requests pushed back for want of KV in this window (a count)
    hot_stuck: int = 0  # free HOT slots that cannot be lent: holes between slabs


@dataclass(frozen=True, slots=True)
class Limits:
    """How far and how fast the fraction may move."""

    min_percent: int = MIN_PERCENT
    max_percent: int = MAX_PERCENT
    step: int = 30  # points a change, at most
    slack: float = 1.15  # HOT room over what is wanted, for first fit
    low_water: float = 0.03  # COLD headroom under this share of all slots is pressure
    band: int = 2  # points that are not worth a move

    def __post_init__(self) -> None:
        if not MIN_PERCENT <= self.min_percent <= self.max_percent <= MAX_PERCENT:
            raise BadSizeError(f"bounds {self.min_percent}..{self.max_percent} outside 5..80")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A percentage worth moving to, and why."""

    percent: int
    reason: str


def propose(seen: Signals, limits: Limits) -> Proposal | None:
    """The fraction that these signals ask for, one bounded step away; None: stay.

    HOT lends its idle tail, so a share that is too large costs nothing and shrinking gives COLD
    only the holes between slabs.  A prefix takes as many slots in COLD as in HOT, so pressure on
    COLD is no reason against growing either: what grows, is refused or rolled back if need be.
    """
    now = percent_of(seen.hot_size, seen.total)
    wanted = -(-int(seen.hot_wanted * limits.slack) * 100 // seen.total)
    starving = seen.cold_failed or seen.preempted or seen.cold_low < limits.low_water * seen.total
    if starving and wanted < now:
        target = max(wanted, now - 100 * seen.hot_stuck // seen.total)
        reason = f"COLD is short ({seen.cold_low} slots), {seen.hot_stuck} lie between slabs"
    elif seen.hot_failed and wanted > now:
        target, reason = wanted, f"{seen.hot_failed} HOT slots asked in vain, wants {wanted} %"
    else:
        return None
    target = max(now - limits.step, min(now + limits.step, target))
    target = max(limits.min_percent, min(limits.max_percent, target))
    return Proposal(target, reason) if abs(target - now) >= limits.band else None


def percent_of(slots: int, total: int) -> int:
    """A HOT size as a whole percentage, nearest."""
    return (200 * slots + total) // (2 * total)


def slots_of(percent: int, total: int) -> int:
    """The HOT size of a whole percentage."""
    return percent * total // 100


@dataclass(slots=True)
class ResizeCounters:
    """Monotonic counts since start."""

    begun: int = 0
    committed: int = 0
    rolled_back: int = 0
    refused: int = 0


@dataclass(slots=True)
class FpController:
    """Holds the wanted percentage and drives towards it; `tick` once between steps."""

    upkeep: Upkeep
    limits: Limits = field(default_factory=Limits)
    dwell: float = 60.0  # least time before it shrinks again; a quarter of it before it grows
    repeats: int = 3  # windows in a row that must propose the same direction
    max_slots_per_step: int = 8192
    max_steps: int = 10_000  # a resize that takes longer is rolled back
    counters: ResizeCounters = field(default_factory=ResizeCounters)
    last_reason: str = ""
    _streak: int = 0
    _changed_at: float = float("-inf")
    _steps: int = 0
    _target: int | None = None  # slots, while a resize is under way

    @property
    def percent(self) -> int:
        """The fraction in force."""
        memory = self.upkeep.cache.memory
        return percent_of(memory.hot.size, memory.space.total)

    @property
    def busy(self) -> bool:
        """Whether a resize or a reclaim is under way, or room is made for one."""
        return self.upkeep.making_room or self.upkeep.cache.memory.relocation is not None

    def resize(self, percent: int, now: float) -> bool:
        """Start a change to `percent`; False with `last_reason` when it cannot start.

        A reclaim in progress gives way: it is rolled back, and the resize takes its range; so does
        a resize to another percentage, also to the one in force.  With idle leaves in its way a
        growth begins some steps later, and may still find no room then.
        """
        if not self.limits.min_percent <= percent <= self.limits.max_percent:
            raise BadSizeError(f"{percent} % is outside the bounds of this controller")
        memory = self.upkeep.cache.memory
        size = slots_of(percent, memory.space.total)
        if size == memory.hot.size:
            if self._target is not None:
                self._abandon()
            self.last_reason = f"{percent} % is in force"
            return True
        self._abandon()
        try:
            (self.upkeep.grow if size > memory.hot.size else self.upkeep.shrink)(size)
        except RelocationError as error:
            self.counters.refused += 1
            self.last_reason = f"{percent} % refused: {error}"
            return False
        self.counters.begun += 1
        self._steps, self._changed_at, self._target = 0, now, size
        self.last_reason = f"resizing to {percent} %"
        return True

    def _abandon(self) -> None:
        """Roll back what is under way; the books of a resize are closed with it."""
        self.upkeep.abort()
        self.tick()

    def observe(self, seen: Signals, now: float) -> Proposal | None:
        """One window: acts when proposals repeat and the last change has rested."""
        proposal = propose(seen, self.limits)
        if proposal is None:
            self._streak = 0
            return None
        direction = 1 if proposal.percent > self.percent else -1
        self._streak = self._streak + direction if self._streak * direction > 0 else direction
        rested = now - self._changed_at >= (self.dwell if direction < 0 else self.dwell / 4)
        if abs(self._streak) >= self.repeats and rested and not self.busy:
            self._streak = 0
            return self._approach(proposal, now)
        return None

    def _approach(self, proposal: Proposal, now: float) -> Proposal | None:
        """Go as far towards the proposal as can be started, by halves.

        What a growth drives out of COLD must fit elsewhere; with COLD full only a part of it does,
        and the prefixes that then move into HOT make room for the next part.
        """
        here, there = self.percent, proposal.percent
        while abs(there - here) >= self.limits.band:
            if self.resize(there, now):
                self.last_reason = proposal.reason
                return Proposal(there, proposal.reason)
            there = here + int((there - here) / 2)
        return None

    def tick(self) -> None:
        """Account for one step of a running resize; rolls back one that takes too long.

        The copies themselves are made by `Upkeep.run`, which the engine calls anyway.
        """
        if self._target is None:
            return
        self._steps += 1
        if self.busy and self._steps > self.max_steps:
            self.upkeep.abort()
            self.last_reason = f"rolled back after {self.max_steps} steps"
        elif self.upkeep.making_room and self._steps > 1:  # the first part went in `resize`
            self._go_on(self._target)
        if not self.busy:
            done = self.upkeep.cache.memory.hot.size == self._target
            self.counters.committed += done
            self.counters.rolled_back += not done
            self._target = None

    def _go_on(self, size: int) -> None:
        """More room for a growth, and its beginning as soon as there is enough."""
        percent = percent_of(size, self.upkeep.cache.memory.space.total)
        try:
            self.upkeep.grow(size)
        except RelocationError as error:
            self.last_reason = f"{percent} % refused: {error}"
