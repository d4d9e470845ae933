"""What came out: the same keys for ``simulate`` and ``replay``. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished run. Seconds; None is what could not be known, which is not 0."""

    ttft: Sequence[float]
    """Seconds to the first token of each completed request, in the order of sending."""
    from_remote_share: float | None
    """Prompt tokens that came from L2, of all of completed requests."""
    gpu_utilization: float | None
    timeouts: int | None
    """Lookups that did not answer in time, so that the prompt was recomputed."""
    errors: int
    tokens: int
    """Prompt and output tokens of completed requests."""
    seconds: float
    """From the first request's start to the last one's end."""


def document(outcome: Outcome) -> dict[str, Any]:
    """The JSON of ``-o json``; its keys are a promise (docs/cli.md)."""
    rate = outcome.tokens / outcome.seconds if outcome.seconds > 0 else None
    return {
        "ttft": latencies(outcome.ttft),
        "thirdsP50": thirds(outcome.ttft),
        "fromL2Fraction": outcome.from_remote_share,
        "gpuUtilization": outcome.gpu_utilization,
        "timeouts": outcome.timeouts,
        "completed": len(outcome.ttft),
        "errors": outcome.errors,
        "throughputTokensPerSecond": rate,
    }


def latencies(values: Sequence[float]) -> dict[str, float | None]:
    """Percentiles, greatest and mean; all null where nothing was completed."""
    ordered = sorted(values)
    found: dict[str, float | None] = {
        name: percentile(ordered, share) for name, share in QUANTILES.items()
    }
    found["max"] = ordered[-1] if ordered else None
    found["mean"] = sum(ordered) / len(ordered) if ordered else None
    return found


def thirds(values: Sequence[float]) -> list[float | None]:
    """The median of each third of the requests, by when they were sent: does the queue grow?"""
    count = len(values)
    cuts = [round(count * part / 3) for part in range(4)]
    return [percentile(sorted(values[start:end]), 0.5) for start, end in pairwise(cuts)]


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """By linear interpolation between the two nearest, as numpy does; None of nothing."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
