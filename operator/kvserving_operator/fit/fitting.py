"""From records to R, B, Te and Tw, each with its interval, its age and where it is from. Pure.

No straight line is fitted through request times: prompts of one length, which is what one workload
sends, leave slope and intercept open. Each number has timers of its own instead:

    B   bytes from the tier / seconds the tier worked for the load
    Te  the step of the load, less what it computed for others
    Tw  probe + notice
    R   tokens / seconds of a step without a load

A fit belongs to one revision of the engines. The operator keeps it in memory; what outlives a
restart are the last good numbers, which are in the status.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Final, TypeVar

from kvserving_operator.cost import Model
from kvserving_operator.fit import robust
from kvserving_operator.fit.records import STEP_TOKENS, LoadRecord, Recent, StepRecord
from kvserving_operator.fit.window import LEAST, Sample, Window

_T = TypeVar("_T")

WARM_UP: Final = 5
"""First loads and steps of an engine that do not count: they compile, connect and allocate."""
_WIDEST: Final = 0.2
"""Half the 95 % interval, as a share of the value, beyond which a number is not known."""
_CLOSE: Final = 0.005
"""The same for fixed times, in seconds: what is known to so few is known, however short it is."""
_SIGMAS: Final = 1.96
_MOST_ENGINES: Final = 256
"""Starts whose progress is remembered; the ones not heard of for longest go."""


class Source(StrEnum):
    """Where a number is from."""

    MEASURED = "Measured"
    LAST_GOOD = "LastGood"
    SPEC = "Spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of the model."""

    value: float
    low: float
    """Lower end of the 95 % interval; the value itself where none is known."""
    high: float
    samples: int
    """Measurements behind it; 0 for what was not measured by this process."""
    age_seconds: float | None
    """Since the latest measurement; None where that is not known."""
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The four measured numbers as plain values: the last good ones, or the spec's."""

    tokens_per_second: float | None = None
    bandwidth: float | None = None
    engine_fixed_seconds: float | None = None
    request_fixed_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of the model: each number, or None."""

    tokens_per_second: Number | None
    bandwidth: Number | None
    engine_fixed_seconds: Number | None
    request_fixed_seconds: Number | None

    @property
    def measured(self) -> bool:
        """Whether every number was measured lately."""
        return all(
            number is not None and number.source is Source.MEASURED for number in self._numbers()
        )

    def _numbers(self) -> tuple[Number | None, ...]:
        return (
            self.tokens_per_second,
            self.bandwidth,
            self.engine_fixed_seconds,
            self.request_fixed_seconds,
        )

    def numbers(self) -> Numbers:
        """The plain values: what the next operator takes for the last good ones."""
        rate, bandwidth, engine, request = (None if n is None else n.value for n in self._numbers())
        return Numbers(
            tokens_per_second=rate,
            bandwidth=bandwidth,
            engine_fixed_seconds=engine,
            request_fixed_seconds=request,
        )

    def model(self, bytes_per_token: float) -> Model | None:
        """The cost model; None as long as one number is missing."""
        numbers = self.numbers()
        if numbers.tokens_per_second is None or numbers.bandwidth is None:
            return None
        if numbers.engine_fixed_seconds is None or numbers.request_fixed_seconds is None:
            return None
        return Model(
            tokens_per_second=numbers.tokens_per_second,
            bytes_per_token=bytes_per_token,
            bandwidth=numbers.bandwidth,
            engine_fixed_seconds=numbers.engine_fixed_seconds,
            request_fixed_seconds=numbers.request_fixed_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecords:
    """What one engine's store has recorded."""

    start_id: str
    recent: Recent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """How far one start was read."""

    load_serial: int = -1
    step_serial: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Samples of one revision, and how far each of its engines was read."""

    revision: str
    bandwidth: Window = field(default_factory=Window)
    """Seconds for each byte: times have the noise, rates would be skewed by it."""
    engine_fixed: Window = field(default_factory=Window)
    request_fixed: Window = field(default_factory=Window)
    rate: Window = field(default_factory=Window)
    """Seconds for each token."""
    progress: tuple[tuple[str, _Progress], ...] = ()
    """By start, the one heard of last at the end."""


def observe(fit: Fit, engines: Iterable[EngineRecords], *, revision: str, now: float) -> Fit:
    """``fit`` with what is new in these engines' rings; begun anew for another revision.

    A record is taken in once, however often its ring is read. Engines are interleaved, so that a
    slow one among them is noise and no change.
    """
    if fit.revision != revision:
        fit = Fit(revision=revision)
    progress = dict(fit.progress)
    loads: list[Sequence[LoadRecord]] = []
    steps: list[Sequence[StepRecord]] = []
    for engine in engines:
        before = progress.pop(engine.start_id, _Progress())
        fresh = [r for r in engine.recent.loads if r.serial > before.load_serial]
        more = [r for r in engine.recent.steps if r.serial > before.step_serial]
        progress[engine.start_id] = _Progress(
            load_serial=max((r.serial for r in fresh), default=before.load_serial),
            step_serial=max((r.serial for r in more), default=before.step_serial),
        )
        loads.append([record for record in fresh if record.serial >= WARM_UP])
        steps.append([record for record in more if record.serial >= WARM_UP])
    fit = replace(fit, progress=tuple(progress.items())[-_MOST_ENGINES:])
    fit = _with_steps(fit, _interleaved(steps), now)
    return _with_loads(fit, _interleaved(loads), now)


def _interleaved(rows: Sequence[Sequence[_T]]) -> list[_T]:
    missing = object()
    mixed = chain.from_iterable(zip_longest(*rows, fillvalue=missing))
    return [each for each in mixed if each is not missing]  # type: ignore[misc]


def _with_steps(fit: Fit, steps: Sequence[StepRecord], now: float) -> Fit:
    usable = [step for step in steps if step.tokens >= STEP_TOKENS]
    if not usable:
        return fit
    samples = (Sample(at=now, value=step.seconds / step.tokens) for step in usable)
    return replace(fit, rate=fit.rate.with_samples(samples))


def _with_loads(fit: Fit, loads: Sequence[LoadRecord], now: float) -> Fit:
    if not loads:
        return fit
    bandwidth = (
        Sample(at=now, value=load.served_seconds / load.bytes_read, weight=load.bytes_read)
        for load in loads
        if load.bytes_read > 0 and load.served_seconds > 0
    )
    engine = (Sample(at=now, value=load.step_seconds) for load in loads if _alone(load))
    request = (
        Sample(at=now, value=load.probe_seconds + load.notice_seconds)
        for load in loads
        if load.notice_seconds is not None
    )
    return replace(
        fit,
        bandwidth=fit.bandwidth.with_samples(bandwidth),
        engine_fixed=fit.engine_fixed.with_samples(engine),
        request_fixed=fit.request_fixed.with_samples(request),
    )


def _alone(load: LoadRecord) -> bool:
    """Whether its step did nothing else: one load and no more than a tail of computed tokens."""
    return load.step_loads == 1 and load.step_tokens < STEP_TOKENS


def estimate(
    fit: Fit, *, now: float, last_good: Numbers | None = None, spec: Numbers | None = None
) -> Known:
    """What is known now: measured, else the last good number, else the spec's."""
    good, told = last_good or Numbers(), spec or Numbers()

    def known(window: Window, name: str, *, inverse: bool) -> Number | None:
        return (
            _measured(window, now, inverse=inverse)
            or _told(getattr(good, name), Source.LAST_GOOD)
            or _told(getattr(told, name), Source.SPEC)
        )

    return Known(
        tokens_per_second=known(fit.rate, "tokens_per_second", inverse=True),
        bandwidth=known(fit.bandwidth, "bandwidth", inverse=True),
        engine_fixed_seconds=known(fit.engine_fixed, "engine_fixed_seconds", inverse=False),
        request_fixed_seconds=known(fit.request_fixed, "request_fixed_seconds", inverse=False),
    )


def _measured(window: Window, now: float, *, inverse: bool) -> Number | None:
    close = 0.0 if inverse else _CLOSE
    values = window.values
    newest = window.newest
    if newest is None or len(values) < LEAST:
        return None
    centre, error = robust.location(values)
    half = _SIGMAS * error
    if centre <= 0 or half > max(_WIDEST * centre, close):
        return None
    low, high = centre - half, centre + half
    if inverse:
        centre, low, high = 1 / centre, 1 / high, 1 / low
    return Number(
        value=centre,
        low=low,
        high=high,
        samples=len(values),
        age_seconds=max(0.0, now - newest),
        source=Source.MEASURED,
    )


def _told(value: float | None, source: Source) -> Number | None:
    if value is None:
        return None
    return Number(value=value, low=value, high=value, samples=0, age_seconds=None, source=source)
