"""The plot of ``kvserving simulate``: latencies over time and their spread. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvserving_operator.cli.plotting import draw_into
from kvserving_operator.simulation.job import Job

_OURS, _LATE, _THEIRS, _GREY = "#1f6fb4", "#c0392b", "#e08214", "#666666"


def draw(
    requests: Sequence[Job], result: Mapping[str, Any], other: Mapping[str, Any] | None, path: Path
) -> None:
    """Draw into ``path``, an SVG or a PNG; ``other`` is a replay's result beside this one.

    Raises:
        UsageError: When matplotlib is missing or the file cannot be made.
    """

    def panels(figure: Any) -> None:
        over_time, spread = figure.subplots(1, 2)
        _over_time(over_time, requests)
        _spread(spread, requests, result, other)

    draw_into(path, (10, 4.5), panels)


def _over_time(axes: Any, requests: Sequence[Job]) -> None:
    """One point a request, by when it was sent."""
    for late, colour, name in ((False, _OURS, "answered"), (True, _LATE, "lookup timed out")):
        shown = [job for job in requests if job.timed_out is late]
        if shown:
            times = [job.sent for job in shown]
            values = [job.first_token - job.sent for job in shown]
            axes.plot(times, values, ".", markersize=3, color=colour, label=name, rasterized=True)
    axes.set_xlabel("seconds after the start")
    axes.set_ylabel("seconds to the first token")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", frameon=False)


def _spread(
    axes: Any, requests: Sequence[Job], result: Mapping[str, Any], other: Mapping[str, Any] | None
) -> None:
    """The share of requests that were answered by then, with the percentiles of a replay."""
    values = sorted(job.first_token - job.sent for job in requests)
    shares = [(place + 1) / len(values) for place in range(len(values))]
    axes.step(values, shares, where="post", color=_OURS, label="simulated")
    quantiles = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    for name, share in quantiles:
        axes.annotate(
            f"{name} {result['ttft'][name]:.2f} s", (result["ttft"][name], share),
            textcoords="offset points", xytext=(6, -10), fontsize=8, color=_GREY,
        )  # fmt: skip
    theirs = {} if other is None else other["ttft"]
    known = [(theirs[name], share) for name, share in quantiles if theirs.get(name) is not None]
    if known:
        axes.plot(*zip(*known, strict=True), "o", color=_THEIRS, label="replayed")
    axes.set_xlabel("seconds to the first token")
    axes.set_ylabel("share of the requests")
    axes.set_ylim(0, 1.02)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
