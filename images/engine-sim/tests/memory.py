"""Memory of processes over time, and whether it grows once they have warmed up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import median

WARM_UP = 1 / 3
"""Share of a run in which caches fill, libraries are loaded and allocators find their size."""


def own(pid: int) -> int:
    """Bytes of a process that no file is behind.

    Not those of its libraries: they come and go with what else runs on the machine.
    """
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += 1024 * int(line.split()[1])
    return total


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of samples (Theil and Sen), per unit of time.

    A step, a burst or a single outlier does not move it; something that grows all the time does.
    """
    pairs = combinations(samples, 2)
    return median((b - a) / (later - earlier) for (earlier, a), (later, b) in pairs)


def growth(samples: Sequence[tuple[float, int]], seconds: float) -> float:
    """By which share of itself memory has grown since the warm-up, going by the slope."""
    warm = [each for each in samples if each[0] >= WARM_UP * seconds]
    size = median(size for _, size in warm)
    return slope(warm) * (warm[-1][0] - warm[0][0]) / size


def summary(
    samples: Mapping[str, Sequence[tuple[float, int]]], seconds: float
) -> dict[str, object]:
    """Of each process: megabytes at the start, after the warm-up and at the end, and the growth."""
    found: dict[str, object] = {}
    for name, each in samples.items():
        after = next(size for at, size in each if at >= WARM_UP * seconds)
        found[name] = {
            "megabytes": [round(size / 1e6, 2) for size in (each[0][1], after, each[-1][1])],
            "growth": round(growth(each, seconds), 5),
        }
    return found
