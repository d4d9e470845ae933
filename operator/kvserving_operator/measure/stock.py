"""Loads and steps of a stock engine, from what its page counted between two looks. Pure.

A stock engine keeps no records: vLLM counts seconds and tokens of finished prompts, LMCache those
of its loads. So an interval gives at most one mean load and one mean step, as rows that the fit
reads like any other, and only where means say what a single one would:

- nobody waited, so that no two prompts shared a step and their seconds add up to the engine's;
- for R nothing was loaded and prompts were long; for Te hardly anything was computed.

Loads are synchronous (``enable_async_loading`` is off): LMCache asks the tier while vLLM schedules,
and fetches in the step. All of it is in vLLM's prefill seconds, and the engine stands still for it.
LMCache publishes every 10 s, so its counters may be of a little earlier than vLLM's: of them only
means are taken, and what falls between two phases of traffic is an outlier to the fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvserving_operator.fit import LoadRecord, Recent, StepRecord
from kvserving_operator.fit.records import STEP_TOKENS
from kvserving_operator.measure.facts import EngineFacts

_WAITED: Final = 0.05
"""Seconds of waiting, as a share of those of prefill, above which prompts may have shared steps."""
_COMPUTED: Final = 0.05
"""Computed tokens, as a share of those hit, above which a prompt in an interval was no hit."""
_LEAST_STORED: Final = 16_384
"""Stored tokens below which their mean size says nothing."""
_SECOND: Final = 1000.0

Moved = Callable[[str], float | None]
"""By how much a number of the page grew; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one stock engine did in an interval."""

    start_id: str
    recent: Recent
    """At most one mean load and one mean step."""
    hit_tokens: float | None
    """Mean tokens of a load, whether from the tier or from the engine's memory."""
    hit_bytes: float | None
    """Mean bytes that a load brought from the tier; less than its KV as far as memory had it."""
    busy: float | None
    """u; None where prompts shared steps, which their seconds count twice."""
    work: "Work | None"
    """Where u is None: what u can be told by, once R is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What held an engine for how long."""

    computed_tokens: float
    loading_seconds: float
    elapsed_seconds: float


def look(now: EngineFacts, moved: Moved, *, elapsed: float, copies: int) -> Look | None:
    """What a stock engine that prefills did; None for another, or without a difference.

    Args:
        now: The engine at the later look.
        moved: How its numbers moved since the earlier one.
        elapsed: Seconds between the two pages.
        copies: Ranks that read and write KV of their own, all at once.
    """
    if now.role != "prefill" or now.store is not None or now.start_id is None or elapsed <= 0:
        return None
    page = _Page(now, moved, copies)
    alone = page.alone
    tokens = _ratio(moved("retrievedTokens"), moved("retrieves"))
    return Look(
        start_id=now.start_id,
        recent=Recent(loads=page.loads(alone=alone), steps=page.steps() if alone else ()),
        hit_tokens=tokens,
        # By vLLM's tokens, because each rank counts a load, and perhaps one alone reads.
        hit_bytes=_product(
            tokens, _ratio(moved("tierReadBytes"), moved("externalPrefixCacheHits"))
        ),
        busy=page.busy(elapsed) if alone else None,
        work=None if alone else page.work(elapsed),
    )


def bytes_per_token(now: EngineFacts, copies: int) -> float | None:
    """s, over all that this engine ever stored; None for too little of it."""
    tokens, size = now.number("storedTokens"), now.number("tierWriteBytes")
    if now.store is not None or tokens is None or not size or tokens < _LEAST_STORED * copies:
        return None
    return copies * size / tokens


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _product(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second


class _Page:
    """The differences of one page."""

    def __init__(self, now: EngineFacts, moved: Moved, copies: int) -> None:
        self._moved, self._copies = moved, copies
        # As many prompts as there were number the records of an interval, too.
        self._serial = int(now.number("prefills") or 0)
        self._prefills = moved("prefills")
        self._seconds = moved("prefillSeconds")
        self._computed = moved("computedTokens")
        self._hits = moved("externalPrefixCacheHits")

    @property
    def alone(self) -> bool:
        """Whether prompts came one after the other: who shares a step has waited for one."""
        waited = self._moved("queueSeconds")
        if self._seconds is None or waited is None:
            return False
        return waited <= _WAITED * self._seconds

    def busy(self, elapsed: float) -> float | None:
        if self._seconds is None:
            return None
        # A prompt that ended in the interval may have begun before it.
        return min(1.0, self._seconds / elapsed)

    def work(self, elapsed: float) -> Work | None:
        each, reads = _ratio(*map(self._moved, _LOADING)), self._moved("tierReads")
        loading = _product(each, reads)
        if self._computed is None or loading is None:
            return None
        return Work(
            computed_tokens=self._computed,
            loading_seconds=loading / self._copies,
            elapsed_seconds=elapsed,
        )

    def steps(self) -> tuple[StepRecord, ...]:
        """The mean prompt that was computed, where nothing else was done."""
        if not self._prefills or not self._seconds or self._computed is None or self._hits != 0:
            return ()
        tokens = int(self._computed / self._prefills)
        if tokens < STEP_TOKENS:
            return ()
        seconds = self._seconds / self._prefills
        return (StepRecord(serial=self._serial, tokens=tokens, seconds=seconds),)

    def loads(self, *, alone: bool) -> tuple[LoadRecord, ...]:
        """The mean load from the tier, and what else it cost where all prompts were loads."""
        reads, seconds = self._moved("tierReads"), self._moved("tierReadMs")
        size, asked = self._moved("tierReadBytes"), _ratio(*map(self._moved, _LOOKUPS))
        if self._prefills is None or not reads or not seconds or not size or asked is None:
            return ()
        served = seconds / _SECOND / reads
        held = self._held(seconds / _SECOND / self._copies) if alone else None
        return (
            LoadRecord(
                serial=self._serial,
                tokens=max(1, int(_ratio(*map(self._moved, _RETRIEVES)) or 0)),
                bytes_read=int(self._copies * size / reads),
                probe_seconds=asked,
                fetch_seconds=served,
                served_seconds=served,
                notice_seconds=0.0,
                step_seconds=max(0.0, (held or 0.0) - asked),
                step_tokens=0,
                # Of loads beside computed prompts nothing follows for the engine's time.
                step_loads=1 if held is not None and held > asked else 2,
            ),
        )

    def _held(self, reading: float) -> float | None:
        """Seconds of a mean hit without those in which the tier was read; None of a mixture."""
        if not self._prefills or self._seconds is None or not self._hits:
            return None
        if self._computed is None or self._computed > _COMPUTED * self._hits:
            return None
        return (self._seconds - reading) / self._prefills


_LOOKUPS: Final = ("lookupSeconds", "lookups")
_LOADING: Final = ("retrieveSeconds", "retrieves")
_RETRIEVES: Final = ("retrievedTokens", "retrieves")
