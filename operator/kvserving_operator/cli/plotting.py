"""Draws a plot into a file: what the plots of all commands have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvserving_operator.cli.errors import UsageError


def draw_into(path: Path, size: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Give ``draw`` an empty matplotlib figure of ``size`` inches and save it as ``path`` says.

    Raises:
        UsageError: When matplotlib is missing or the file cannot be made.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            "--plot: matplotlib is missing; install kvserving-operator[cli]"
        ) from error
    # Text stays text, and the same plot has the same bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvserving"}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        svg = path.suffix.lower() == ".svg"
        try:
            figure.savefig(path, dpi=144, metadata={"Date": None} if svg else None)
        except OSError as error:
            raise UsageError(f"--plot {path}: {error.strerror}") from error
