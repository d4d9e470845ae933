"""A mixed day on the simulator: how many prefixes there are, and how long, shifts every minute.

Every static HOT share against the engine's own controller, which begins at 20 % and knows nothing
of what comes.  Arrivals are more than is served, so that output tokens a second compare shares.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from granikv.simulate import Engine, Setup
from granikv.trace import Arrival, synthetic

SLOTS = 200_000
SHARES = (5, 10, 20, 40, 60, 80)


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the day."""

    prefixes: int
    length: int
    rate: float  # arrivals a second


DAY = (
    Phase(2, 4096, 70.0), Phase(12, 8192, 50.0), Phase(3, 2048, 70.0), Phase(6, 16384, 50.0),
    Phase(24, 4096, 50.0), Phase(1, 8192, 70.0),
)  # fmt: skip


def arrivals(phases: Sequence[Phase], seconds: float) -> Iterator[Arrival]:
    """Each phase's prefixes are its own."""
    for i, phase in enumerate(phases):
        yield from synthetic(
            int(phase.rate * seconds), phase.rate, prefixes=phase.prefixes, length=phase.length,
            zipf=0.5, seed=100 + i, begin=i * seconds,
        )  # fmt: skip


def play(
    shares: Sequence[int] = SHARES, *, seconds: float = 60.0, phases: Sequence[Phase] = DAY,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Output tokens a second of each static share and of the tuned one, and the ratios."""
    found: dict[str, dict[str, Any]] = {}
    for name, setup in [
        *((str(s), Setup(slots=SLOTS, percent=s)) for s in shares),
        ("tuned", Setup(slots=SLOTS, percent=20, tune=True)),
    ]:
        engine = Engine(setup)
        report = engine.run(arrivals(phases, seconds))
        found[name] = report.summary() | {
            "hotHitTokens": engine.cache.counters.hot_hit_tokens,
            "percents": report.percents[:: max(1, len(report.percents) // 40)],
            "resizes": engine.fp.counters.committed,
        }
        progress(f"{name}: {found[name]}")
    rates = {name: row["outputTokensPerSecond"] for name, row in found.items()}
    best = max((n for n in rates if n != "tuned"), key=rates.__getitem__)
    return {
        "secondsAPhase": seconds, "runs": found, "best static": best,
        "tuned over best": round(rates["tuned"] / rates[best], 4),
        "tuned over 20": round(rates["tuned"] / rates["20"], 4) if "20" in rates else None,
    }  # fmt: skip
