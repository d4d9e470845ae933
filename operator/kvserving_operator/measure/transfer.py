"""How transfers of KV from prefill to decode end, by the difference of readings. Pure.

vLLM counts per engine, without naming the other side, so what is told is told per pod: a decode
counts transfers and those that failed, a prefill leases that ran out before a decode had fetched
its KV, and fetches that were confirmed after that. SGLang counts failures alone; there every
request that a decode finished is a transfer.

A client that hangs up between prefill and decode leaves a lease that runs out and no other trace:
no engine counts it as aborted, and a decode that has the request, even waiting, keeps the lease
alive. So leases that run out are failures where a decode was lost in the same window or something
else failed, and where they go on running out look after look; not in a burst by themselves.

It is meant to be read by people and alerts, so it moves slowly: one failure in a hundred transfers
within five minutes makes it fail, and it is well again when it has been below that for another
five, and below half of that at the end. Transfers that ended well count for an hour.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kvserving_operator.measure.facts import EngineFacts

WINDOW: Final = 300.0
"""Seconds over which transfers and failures are compared."""
HOLD: Final = 3600.0
"""Seconds after the last transfer for which how it ended is still told."""
FAIL_SHARE: Final = 0.01
"""Failures among transfers from which on they fail."""
WELL_SHARE: Final = 0.005
"""Failures among transfers below which they are well again."""
FRESH: Final = 60.0
"""Seconds after which a page says nothing about now."""

_FAILURES: Final[Mapping[str, str]] = {
    "nixlFailedTransfers": "transfers fail",
    "nixlFailedNotifications": "notifications fail",
    "nixlExpiredRequests": "leases run out before a decode has fetched the KV",
    "nixlLateNotifications": "KV is fetched after its lease",
}
"""Counters of the facts, and what they say of a pod."""
_FAILED: Final = "nixlFailedTransfers"
_NOTICES: Final = "nixlFailedNotifications"
_TRANSFERS: Final = "nixlTransfers"
_REQUESTS: Final = "requestsFinished"
_DECODE: Final = "decode"
_EXPIRED: Final = _FAILURES["nixlExpiredRequests"]
_GOES_ON: Final = 3
"""Looks of one window in which leases ran out: no burst of clients that hang up."""
_MOST_NAMED: Final = 8
_ROUNDED: Final = 0.5
"""Seconds by which ages may be off: the same page must not pass for a later one."""


class Outcome(StrEnum):
    """How transfers end."""

    SUCCEED = "Succeed"
    FAIL = "Fail"
    NO_TRAFFIC = "NoTraffic"
    NOT_MEASURED = "NotMeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is told."""

    outcome: Outcome
    faults: tuple[str, ...] = ()
    """Of a failure: pods and what goes wrong there, sorted, without numbers."""
    brief: bool = False
    """Of no traffic: it was looked for more briefly than how transfers ended is told, so what was
    told before this history began is not contradicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """One engine's counters, as of a time."""

    start_id: str
    at: float
    decode: bool
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What came to pass between two looks."""

    at: float
    transfers: float
    failures: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferHistory:
    """What is remembered between looks; bounded by the pods and the looks of one window."""

    began: float
    """Monotonic second of the first look."""
    measured_at: float
    """Of the last look at which a decode told its counters; at first ``began``."""
    measured: bool = False
    """A decode has told its counters once."""
    traffic_at: float | None = None
    """Of the last transfer or failure."""
    failed_at: float | None = None
    """Of the last look at which too many failed."""
    lost_at: float | None = None
    """Of the last look at which a decode had started anew or was not heard any more."""
    ending: Verdict | None = None
    """How the last transfers ended; None before the first."""
    verdict: Verdict | None = None
    """None: nothing can be told yet."""
    pages: Mapping[str, _Page] = field(default_factory=lambda: MappingProxyType({}))
    steps: tuple[_Step, ...] = ()


def follow(
    before: TransferHistory | None, engines: Mapping[str, EngineFacts], now: float
) -> TransferHistory:
    """The history with one more look.

    Args:
        before: Of the look before; None: this is the first.
        engines: What prefill and decode engines said, by pod; of those that answered.
        now: Monotonic second.
    """
    known = before or TransferHistory(began=now, measured_at=now)
    pages = dict(_pages(engines, now))
    step = _step(known.pages, pages, engines, now)
    measured = any(engines[pod].role == _DECODE and page.values for pod, page in pages.items())
    moved = step.transfers > 0 or bool(step.failures)
    # Who did not answer this time is compared with what it said last.
    kept = {pod: p for pod, p in known.pages.items() if pod not in pages and now - p.at < HOLD}
    history = replace(
        known,
        measured_at=now if measured else known.measured_at,
        measured=measured or known.measured,
        traffic_at=now if moved else known.traffic_at,
        lost_at=now if _lost(known.pages, pages, now) else known.lost_at,
        pages={**kept, **pages},
        steps=(*(s for s in known.steps if now - s.at < WINDOW), *((step,) if moved else ())),
    )
    if _share(history) >= FAIL_SHARE:
        history = replace(history, failed_at=now)
    history = replace(history, ending=_ending(history, now))
    return replace(history, verdict=_verdict(history, now))


def _pages(engines: Mapping[str, EngineFacts], now: float) -> Iterator[tuple[str, _Page]]:
    wanted = {*_FAILURES, _TRANSFERS, _REQUESTS}
    for pod, facts in engines.items():
        age = facts.scrape_age_seconds
        if facts.start_id is not None and age is not None and age <= FRESH:
            values = {name: n.value for name, n in facts.numbers.items() if name in wanted}
            yield (
                pod,
                _Page(
                    start_id=facts.start_id,
                    at=now - age,
                    decode=facts.role == _DECODE,
                    values=values,
                ),
            )


def _lost(before: Mapping[str, _Page], pages: Mapping[str, _Page], now: float) -> bool:
    """Whether a decode that was heard of lately has started anew, or says nothing now."""
    return any(
        pod not in pages or pages[pod].start_id != old.start_id
        for pod, old in before.items()
        if old.decode and now - old.at < WINDOW
    )


def _step(
    before: Mapping[str, _Page],
    pages: dict[str, _Page],
    engines: Mapping[str, EngineFacts],
    now: float,
) -> _Step:
    """What changed; a page that is no newer than the one before takes its place in ``pages``."""
    transfers, failures = 0.0, dict[tuple[str, str], float]()
    for pod, page in list(pages.items()):
        old = before.get(pod)
        if old is None:
            continue
        if old.start_id == page.start_id and page.at <= old.at + _ROUNDED:
            pages[pod] = old
            continue
        more = _counted_once(_difference(old, page))
        failures |= {(pod, what): more[name] for name, what in _FAILURES.items() if more.get(name)}
        if engines[pod].role == _DECODE:
            transfers += more.get(_TRANSFERS, more.get(_REQUESTS, 0.0))
    return _Step(at=now, transfers=transfers, failures=failures)


def _difference(old: _Page, new: _Page) -> dict[str, float]:
    """By how much each counter grew; one that both pages have, or that began anew with its engine.

    A counter that goes back within one life of the engine cannot be true, and says nothing.
    """
    if old.start_id != new.start_id:
        return dict(new.values)
    both = new.values.keys() & old.values.keys()
    return {name: max(0.0, new.values[name] - old.values[name]) for name in both}


def _counted_once(more: dict[str, float]) -> dict[str, float]:
    """Without what vLLM 0.32 counts twice: a notification that fails is a failed transfer to it."""
    total, notices = more.get(_FAILED), more.get(_NOTICES)
    return more if total is None or notices is None else more | {_FAILED: max(0.0, total - notices)}


def _share(history: TransferHistory) -> float:
    """Failures among all that ended within the window; 0 when nothing did."""
    failed = sum(sum(_counted(history, step).values()) for step in history.steps)
    ended = failed + sum(step.transfers for step in history.steps)
    return failed / ended if ended else 0.0


def _counted(history: TransferHistory, step: _Step) -> Mapping[tuple[str, str], float]:
    """The failures of a step, without leases that nobody came for."""
    if _leases_count(history):
        return step.failures
    return {key: count for key, count in step.failures.items() if key[1] != _EXPIRED}


def _leases_count(history: TransferHistory) -> bool:
    """Whether leases that ran out speak of transfers, not of clients."""
    if not history.steps:
        return False
    kinds = [{what for _, what in step.failures} for step in history.steps]
    lost = history.lost_at is not None and history.steps[-1].at - history.lost_at < WINDOW
    goes_on = sum(_EXPIRED in kind for kind in kinds) >= _GOES_ON
    return lost or goes_on or any(kind - {_EXPIRED} for kind in kinds)


def _verdict(history: TransferHistory, now: float) -> Verdict | None:
    if now - history.measured_at >= WINDOW:
        return Verdict(outcome=Outcome.NOT_MEASURED)
    if history.traffic_at is not None and now - history.traffic_at < HOLD:
        return history.ending
    if not history.measured:
        return None
    return Verdict(outcome=Outcome.NO_TRAFFIC, brief=now - history.began < HOLD)


def _ending(history: TransferHistory, now: float) -> Verdict | None:
    last = history.ending
    failing = last is not None and last.outcome is Outcome.FAIL
    if history.failed_at == now:
        told = last.faults if last is not None and failing else ()
        return Verdict(outcome=Outcome.FAIL, faults=_faults(told, history))
    if not any(step.transfers for step in history.steps):
        return last
    return last if failing and not _is_well(history, now) else Verdict(outcome=Outcome.SUCCEED)


def _is_well(history: TransferHistory, now: float) -> bool:
    quiet = history.failed_at is None or now - history.failed_at >= WINDOW
    return quiet and _share(history) < WELL_SHARE


def _faults(told: tuple[str, ...], history: TransferHistory) -> tuple[str, ...]:
    """What was told stays while they fail: a text that comes and goes is written each time."""
    failures = (key for step in history.steps for key in _counted(history, step))
    found = sorted(f"pod {pod}: {what}" for pod, what in failures)
    new = [fault for fault in dict.fromkeys(found) if fault not in told]
    return tuple(sorted([*told, *new][:_MOST_NAMED]))
