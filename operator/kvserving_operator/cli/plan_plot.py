"""The plot of ``kvserving plan``: load and recompute time against length. Needs matplotlib."""

import math
from pathlib import Path
from typing import Any

from kvserving_operator.cli.errors import UsageError
from kvserving_operator.cli.plotting import draw_into
from kvserving_operator.cost import Load, Model, load_seconds, recompute_seconds
from kvserving_operator.sizing.answer import Answer
from kvserving_operator.sizing.units import as_rate, as_tokens

_POINTS = 200
_RECOMPUTE, _LOAD, _GREY = "#c0392b", "#1f6fb4", "#666666"


def draw(made: Answer, path: Path) -> None:
    """Draw into ``path``, whose suffix says how.

    Raises:
        UsageError: When matplotlib is missing, the model is not known, or the file cannot be made.
    """
    model = made.question.model
    if model is None:
        raise UsageError(
            "--plot: needs the cost model; give --tokens-per-second, --bandwidth, --fixed-seconds "
            "and --bytes-per-token or --model-card"
        )
    draw_into(path, (8, 5), lambda figure: _axes(figure.subplots(), made, model))


def _axes(axes: Any, made: Answer, model: Model) -> None:
    tokens = _lengths(made)
    loads = [("idle", Load(), "-")]
    if made.verdict is not None and made.verdict.load.busy > 0.005:
        busy = made.verdict.load.busy
        loads.append((f"engine busy {busy:.0%}", Load(busy=busy, pool=made.question.pool), "--"))
    for name, load, style in loads:
        computing = [recompute_seconds(model, n, load) for n in tokens]
        loading = [load_seconds(model, n, load) for n in tokens]
        axes.plot(tokens, computing, style, color=_RECOMPUTE, label=f"recompute, {name}")
        axes.plot(tokens, loading, style, color=_LOAD, label=f"load, {name}")
    _mark(axes, made, tokens[-1])
    axes.set_xlim(0, tokens[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens of the hit")
    axes.set_ylabel("seconds to the first token")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.set_title(
        f"B = {as_rate(model.bandwidth)}, B* = {as_rate(model.break_even_bandwidth)}, "
        f"T0 = {model.fixed_seconds * 1000:.0f} ms"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", frameon=False)


def _mark(axes: Any, made: Answer, last: float) -> None:
    """The break-even lengths that are in sight, and where the traffic is."""
    for name, edge in (("n* idle", made.break_even), ("n* at u", made.break_even_busy)):
        if (
            edge is not None
            and edge <= last
            and not (name == "n* at u" and edge == made.break_even)
        ):
            axes.axvline(edge, color=_GREY, linewidth=0.8, linestyle=":")
            axes.annotate(
                f" {name} {as_tokens(edge)}", (edge, 0.02), xycoords=("data", "axes fraction"),
                rotation=90, fontsize=8, color=_GREY,
            )  # fmt: skip
    traffic, found = made.question.traffic, made.verdict
    if traffic is None or found is None:
        return
    costs = [(found.recompute_seconds, _RECOMPUTE)]
    if math.isfinite(found.load_seconds):
        costs.append((found.load_seconds, _LOAD))
    for place, (seconds, colour) in zip((-14, 8), sorted(costs), strict=False):
        point = (traffic.hit_tokens, seconds)
        axes.plot(*point, "o", color=colour, zorder=3)
        axes.annotate(
            f"{seconds:.3g} s", point, textcoords="offset points", xytext=(6, place),
            fontsize=9, color=colour,
        )  # fmt: skip


def _lengths(made: Answer) -> list[float]:
    """From nothing to beyond what matters: the traffic's length and the break-even ones."""
    marks = [made.break_even, made.break_even_busy]
    if made.question.traffic is not None:
        marks.append(made.question.traffic.hit_tokens)
    seen = [mark for mark in marks if mark is not None and math.isfinite(mark)]
    last = 1.6 * max(seen) if seen else 100_000.0
    return [last * (step / _POINTS) for step in range(_POINTS + 1)]
