"""Decides about hits with what the engine and the tier are doing right now. Pure, but for locks.

Lives in the scheduler's process: it alone sees the engine's steps, all lookups and all ranks.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kvserving_sharded_store.bypass import Bypass, Tier, probed, step
from kvserving_sharded_store.meters import ArrivalMeter, BusyMeter
from kvserving_sharded_store.policy import (
    Decision,
    Load,
    Mode,
    Reason,
    Rules,
    deadline,
    decide,
)

_STEPS: Final = 3
"""Steps an engine has under way at a time at most; one whose end is not told is forgotten."""

_DECLINED: Final = frozenset({Reason.DEARER, Reason.FORCED})
"""Why a hit is recomputed although the tier has it, without a bypass of this judge's own."""

_STARTING: Final = "Starting"
"""Not all ranks have reported yet."""

_SAMPLES: Final = 20
"""Intervals whose bandwidth counts; older ones say nothing about now."""


def upper_bound(samples: Mapping[int, float] | deque[float]) -> float | None:
    """Upper bound of a mean by two standard errors; none for fewer than 3 samples."""
    values = list(samples.values()) if isinstance(samples, Mapping) else list(samples)
    if len(values) < 3:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean + 2 * math.sqrt(variance / len(values))


@dataclass(slots=True)
class RankReport:
    """What a rank last said of itself.

    Attributes:
        closed: Why it loads and stores nothing; none while it is open.
        instances: Instances it has.
        open_breakers: Instances given up at present.
        counts: Its counters.
    """

    closed: str | None = None
    instances: int = 0
    open_breakers: int = 0
    counts: dict[str, float] = field(default_factory=dict)


class Judge:
    """Decides, and keeps what decisions need. Safe to use from several threads.

    Args:
        world: Ranks there are.
        rules: What is in force now.
        now: Monotonic seconds.
        closed: Why nothing may be loaded whatever the ranks say; none normally.
        interval: Seconds between two looks at the tier.
    """

    def __init__(
        self,
        *,
        world: int,
        rules: Callable[[], Rules],
        now: Callable[[], float],
        closed: str | None = None,
        interval: float = 5.0,
    ) -> None:
        self._world = world
        self._rules = rules
        self._now = now
        self._closed = closed
        self.interval = interval
        self._lock = threading.Lock()
        self._busy = BusyMeter()
        self._arrivals = ArrivalMeter()
        self._steps: deque[int] = deque(maxlen=_STEPS)
        self._reports: dict[int, RankReport] = {}
        self._bandwidths: deque[float] = deque(maxlen=_SAMPLES)
        self._moved: tuple[float, float] | None = None
        self._bypass = Bypass()
        self._declined = False
        self._counts: dict[str, float] = {}
        self.owed_tokens: Callable[[], int] = lambda: 0

    def stepped(self, *, tokens: int) -> None:
        """The engine scheduled a step of so many tokens."""
        with self._lock:
            self._steps.append(tokens)
            self._follow_steps()

    def step_ended(self) -> None:
        """The engine has the results of its oldest step; the next may be under way already."""
        with self._lock:
            if self._steps:
                self._steps.popleft()
            self._follow_steps()

    def _follow_steps(self) -> None:
        if any(self._steps):
            self._busy.began(self._now())
        else:
            self._busy.ended(self._now())

    def report(self, rank: int, report: RankReport) -> None:
        """A rank said how it is."""
        with self._lock:
            self._reports[rank] = report

    @property
    def closed(self) -> str | None:
        """Why nothing is loaded; none while every rank is open."""
        with self._lock:
            return self._closed_now()

    def _closed_now(self) -> str | None:
        if self._closed is not None:
            return self._closed
        if len(self._reports) < self._world:
            return _STARTING
        reasons = sorted({r.closed for r in self._reports.values() if r.closed is not None})
        return reasons[0] if reasons else None

    def load(self) -> Load:
        """U, q, λ and p of now."""
        rules = self._rules()
        owed = 0.0 if rules.model is None else self.owed_tokens() * rules.model.token_bytes
        with self._lock:
            now = self._now()
            return Load(
                busy=self._busy.share(now),
                owed=owed,
                arrivals=self._arrivals.rate(now),
                met=self._arrivals.met(now),
            )

    def came(self) -> None:
        """A request is looked up for the first time."""
        with self._lock:
            now = self._now()
            self._arrivals.came(now, busy=self._busy.met(now))

    def decide(self, tokens: int, load: Load) -> Decision:
        """What becomes of a hit of so many tokens, about which all ranks have answered."""
        with self._lock:
            # Who answers for its rank is open, whether its first report is here yet or not: else a
            # request that comes right at the start would be a miss.
            closed = self._closed_now() not in {None, _STARTING}
            bypassed = self._bypass.active
        made = decide(self._rules(), tokens, load, bypassed=bypassed, closed=closed)
        if made.mode is Mode.BYPASS and made.reason in _DECLINED:
            self._declined = True
        self.count(f"decision_{made.mode.value}_{made.reason.value}".lower())
        if made.load_seconds is not None and made.recompute_seconds is not None:
            self.count("decision_load_seconds", made.load_seconds)
            self.count("decision_recompute_seconds", made.recompute_seconds)
        return made

    def load_seconds(self, tokens: int, load: Load, blocking: float) -> float:
        """Seconds a load of so many tokens may take."""
        return deadline(self._rules(), tokens, load, blocking)

    def look(self) -> int:
        """Look at the tier once, every interval: whether it is bypassed, and what to probe it with.

        Hits that are recomputed by the model's numbers, or because that is set, say nothing of the
        tier either: while nothing is read for them it is probed as if it were bypassed.

        Returns:
            Chunks each rank should read now as a probe; 0 while loads show how the tier is.
        """
        rules, now = self._rules(), self._now()
        with self._lock:
            came = self._measure()
            declined, self._declined = self._declined, False
            reports = list(self._reports.values())
            tier = Tier(
                bandwidth_upper=upper_bound(self._bandwidths),
                busy=self._busy.share(now),
                instances=sum(r.instances for r in reports),
                open_breakers=sum(r.open_breakers for r in reports),
            )
            was = self._bypass.active
            self._bypass = step(self._bypass, rules.model, tier, now=now, interval=self.interval)
            if was and not self._bypass.active:
                # What was measured of a bad tier must not bypass it again at once.
                self._bandwidths.clear()
            if not self._bypass.active:
                return int(declined and not came and self._closed_now() is None)
            self._bypass = probed(self._bypass, now=now)
            return 1

    def _measure(self) -> bool:
        """Take in what the ranks read since the last look; whether that was anything."""
        counts = [report.counts for report in self._reports.values()]
        read = sum(c.get("bytes_read", 0.0) for c in counts)
        busy = sum(c.get("fetch_busy_seconds", 0.0) for c in counts)
        before, self._moved = self._moved, (read, busy)
        if before is None:
            return False
        more, seconds = read - before[0], busy - before[1]
        if more > 0 and seconds > 0.001:
            # Every rank's own bandwidth while it was fetching, times the ranks.
            self._bandwidths.append(more / seconds * max(1, len(counts)))
        return more > 0

    @property
    def bypassed(self) -> bool:
        """Whether Auto leaves the tier alone at present."""
        return self._bypass.active

    def count(self, name: str, amount: float = 1) -> None:
        """Count something in this process."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + amount

    def own_counts(self) -> dict[str, float]:
        """Counters of this process."""
        with self._lock:
            return dict(self._counts)

    def counts(self) -> dict[str, float]:
        """Counters of this process, and those of all ranks added up.

        `instances` counts those of all ranks, `open_breakers` those of them given up now.
        """
        with self._lock:
            total = dict(self._counts)
            for report in self._reports.values():
                for name, value in report.counts.items():
                    total[name] = total.get(name, 0) + value
            total["bypassed"] = float(self._bypass.active)
            total["ranks_reporting"] = float(len(self._reports))
            total["instances"] = float(sum(r.instances for r in self._reports.values()))
            total["open_breakers"] = float(sum(r.open_breakers for r in self._reports.values()))
            total["busy_share"] = self._busy.share(self._now())
            return total
