"""Draws the requests of a workload from a seeded generator. Pure."""

from random import Random

from kvserving_operator.simulation.scenario import Arrivals, Lengths, Workload
from kvserving_operator.simulation.trace import Request, Segment


def generator(seed: int) -> Random:
    """The chance of a run: equal seeds, equal runs."""
    return Random(seed)  # noqa: S311 - repeatable, not secret


def requests(workload: Workload, chance: Random) -> list[Request]:
    """As many requests as the workload says; closed loops have all offsets 0."""
    count = workload.requests
    offsets = _offsets(workload.arrivals, count, chance)
    drawn = []
    for number in range(count):
        segments = _prompt(workload, number, chance)
        output = length(workload.output_tokens, chance)
        drawn.append(Request(offset=offsets[number], output_tokens=output, segments=segments))
    return drawn


def length(spec: int | Lengths, chance: Random) -> int:
    """A number of tokens, its median exactly the one asked for."""
    if isinstance(spec, int):
        return spec
    low, high = (spec.min, spec.median) if chance.random() < 0.5 else (spec.median, spec.max)
    return round(chance.uniform(low, high))


def _prompt(workload: Workload, number: int, chance: Random) -> tuple[Segment, ...]:
    tokens = length(workload.prompt_tokens, chance)
    if workload.prefixes is None:
        return (Segment(f"#{number}", tokens),)
    shared = Segment(
        f"prefix-{chance.randrange(workload.prefixes.count)}",
        min(workload.prefixes.tokens, tokens),
    )
    rest = tokens - shared.tokens
    return (shared, Segment(f"#{number}", rest)) if rest else (shared,)


def _offsets(arrivals: Arrivals, count: int, chance: Random) -> list[float]:
    if arrivals.rate is None:
        return [0.0] * count
    offsets, now = [], 0.0
    for number in range(count):
        if number % arrivals.burst == 0 and number:
            mean = arrivals.burst / arrivals.rate / _pace(arrivals, number / count)
            now += _gap(mean, arrivals.variation, chance)
        offsets.append(now)
    return offsets


def _gap(mean: float, variation: float, chance: Random) -> float:
    """A gamma of this mean and coefficient of variation."""
    if variation == 0:
        return mean
    shape = variation**-2
    return chance.gammavariate(shape, mean / shape)


def _pace(arrivals: Arrivals, position: float) -> float:
    """How much faster than on average requests come after this share of them."""
    if not arrivals.profile:
        return 1.0
    time = sum(part.requests / part.rate for part in arrivals.profile)
    passed = 0.0
    for part in arrivals.profile:
        passed += part.requests
        if position < passed:
            return part.rate * time
    return arrivals.profile[-1].rate * time
