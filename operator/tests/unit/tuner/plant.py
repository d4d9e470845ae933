"""Facts at will, and a tuner that runs in them interval by interval."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kvserving_operator.fit import Known, Number, Source
from kvserving_operator.tuner import (
    Facts,
    HotFacts,
    Knob,
    Mode,
    Outcome,
    Settings,
    State,
    decide,
    from_data,
    to_data,
)

INTERVAL = 60.0
START = 1_000_000.0
HOT = HotFacts(
    pool_tokens=1_000_000,
    prefix_tokens=180_000,
    occupancy=0.8,
    failed_admissions=0,
    cold_free_low=0.3,
    preemptions=0,
    dispatch_share=0.5,
    step_seconds=0.03,
)


def number(value: float, *, spread: float = 0.03, source: Source = Source.MEASURED) -> Number:
    return Number(
        value=value,
        low=value * (1 - spread),
        high=value * (1 + spread),
        samples=200,
        age_seconds=10.0,
        source=source,
    )


def known(
    rate: float = 52_200,
    bandwidth: float = 10.76e9,
    engine: float = 0.182,
    request: float = 0.148,
    source: Source = Source.MEASURED,
) -> Known:
    return Known(
        tokens_per_second=number(rate, source=source),
        bandwidth=number(bandwidth, source=source),
        engine_fixed_seconds=number(engine, source=source),
        request_fixed_seconds=number(request, source=source),
    )


CALM = Facts(
    at=START,
    age_seconds=5.0,
    known=known(),
    bytes_per_token=48_400,
    busy=0.5,
    hit_tokens=16_390,
    first_token_seconds=0.6,
    bandwidth=number(10.76e9),
    probed=True,
    open_breakers=0.0,
)
APPLY = Settings(mode=Mode.APPLY)
STOCK = Settings(mode=Mode.APPLY, stock=True)


def slow(bandwidth: float, **more: object) -> Facts:
    return replace(
        CALM, known=known(bandwidth=bandwidth), bandwidth=number(bandwidth), **more  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class Run:
    """Interval after interval; after a change the state goes through the status."""

    settings: Settings = APPLY
    state: State = field(default_factory=State)
    at: float = START
    changes: list[tuple[float, Knob, object]] = field(default_factory=list)

    def step(self, facts: Facts) -> Outcome:
        self.at += INTERVAL
        outcome = decide(self.state, replace(facts, at=self.at), self.settings)
        self.state = outcome.state
        if outcome.change is not None:
            # As after a restart of the operator.
            self.state = from_data(to_data(outcome.state))
        if outcome.change is not None and not outcome.recommend:
            self.changes.append((self.at, outcome.change.knob, outcome.change.value))
        return outcome

    def steps(self, facts: Facts, count: int) -> Outcome:
        outcomes = [self.step(facts) for _ in range(count)]
        return outcomes[-1]

    def until(self, facts: Facts | Callable[[], Facts], knob: Knob, most: int = 40) -> int:
        """Intervals until a knob is turned."""
        for count in range(1, most + 1):
            outcome = self.step(facts if isinstance(facts, Facts) else facts())
            if outcome.change is not None and outcome.change.knob is knob:
                return count
        raise AssertionError(f"{knob} was not turned in {most} intervals")

    def gaps(self) -> Iterator[tuple[Knob, float]]:
        """Seconds between two changes of one knob."""
        last: dict[Knob, float] = {}
        for at, knob, _ in self.changes:
            if knob in last:
                yield knob, at - last[knob]
            last[knob] = at


def settled(settings: Settings = APPLY, facts: Facts = CALM) -> Run:
    """A run in which everything that calm facts ask for has been done and judged."""
    made = Run(settings=settings)
    made.steps(facts, 12)
    made.changes.clear()
    return made
