"""What ``simulate`` and ``replay`` print: one result, or two side by side."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_SECONDS: Final = ("p50", "p90", "p99", "max", "mean")


def text(result: Mapping[str, Any]) -> Iterator[str]:
    """A result as a person reads it; what is not known is a dash."""
    ttft, thirds = result["ttft"], result["thirdsP50"]
    yield "TTFT    " + "   ".join(f"{name} {_seconds(ttft[name])}" for name in _SECONDS)
    yield "p50 of each third of the requests   " + " → ".join(map(_seconds, thirds))
    yield (
        f"from the tier {_percent(result['fromL2Fraction'])}   "
        f"GPUs busy {_percent(result['gpuUtilization'])}   "
        f"lookups timed out {_count(result['timeouts'])}"
    )
    yield (
        f"completed {result['completed']:,}   errors {result['errors']:,}   "
        f"{_count(result['throughputTokensPerSecond'])} tokens/s"
    )


def differences(simulated: Mapping[str, Any], replayed: Mapping[str, Any]) -> dict[str, Any]:
    """Every percentile of both; ``relative`` is simulated/replayed - 1, null where it has none."""
    return {
        name: {"simulate": ours, "replay": theirs, "relative": _relative(ours, theirs)}
        for name, ours, theirs in _pairs(simulated, replayed)
    }


def comparison(simulated: Mapping[str, Any], replayed: Mapping[str, Any]) -> Iterator[str]:
    """The same as a table."""
    yield f"{'':10}{'simulate':>12}{'replay':>12}{'difference':>12}"
    for name, ours, theirs in _pairs(simulated, replayed):
        relative = _relative(ours, theirs)
        shown = "-" if relative is None else f"{relative:+.1%}"
        yield f"{name:10}{_seconds(ours):>12}{_seconds(theirs):>12}{shown:>12}"


def _pairs(
    simulated: Mapping[str, Any], replayed: Mapping[str, Any]
) -> Iterator[tuple[str, float | None, float | None]]:
    for name in _SECONDS:
        yield name, simulated["ttft"].get(name), replayed["ttft"].get(name)
    thirds = zip(simulated["thirdsP50"], replayed["thirdsP50"], strict=False)
    for number, (ours, theirs) in enumerate(thirds, start=1):
        yield f"third {number}", ours, theirs


def _relative(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs - 1


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
