"""Line plots as SVG, without a plotting library: a result should be drawable where it was made."""

from collections.abc import Mapping, Sequence
from math import log2
from xml.sax.saxutils import escape

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, EDGE = 640, 400, 60


def lines(
    title: str,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    x_name: str,
    y_name: str,
    log: bool = False,
) -> str:
    """An SVG of several series over common x values; `log`: both axes to base 2."""

    def scale(value: float) -> float:
        return log2(max(value, 1e-9)) if log else value

    values = [scale(v) for row in series.values() for v in row]
    low, high = (min(values) if log else min(0.0, *values)), max(values)
    left, right = scale(x[0]), scale(x[-1])

    def at(px: float, py: float) -> tuple[float, float]:
        across = (scale(px) - left) / ((right - left) or 1.0)
        up = (scale(py) - low) / ((high - low) or 1.0)
        return EDGE + across * (WIDTH - 2 * EDGE), HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>',
        f'<text x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})" '
        f'text-anchor="middle">{escape(y_name)}</text>',
        f'<path d="M{EDGE} {EDGE}V{HEIGHT - EDGE}H{WIDTH - EDGE}" fill="none" stroke="black"/>',
    ]
    for value in x:
        across, _ = at(value, 2.0**low if log else low)
        parts.append(
            f'<text x="{across:.1f}" y="{HEIGHT - EDGE + 16}" text-anchor="middle">{value:g}</text>'
        )
    for value in (low, (low + high) / 2, high):
        real = 2.0**value if log else value
        _, up = at(x[0], real)
        parts.append(f'<text x="{EDGE - 6}" y="{up + 4:.1f}" text-anchor="end">{real:.3g}</text>')
    for i, (name, row) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*p) for p in zip(x, row, strict=True)))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{EDGE + 8}" y="{EDGE + 14 * i}" fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])
