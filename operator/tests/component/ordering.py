"""Which files begin first (`pytest --dist loadfile --no-loadscope-reorder`).

What takes longest begins first, or it would end alone: the mark `takes(SECONDS)` says how long a
test takes on a quiet machine, or the whole file where its tests share what a fixture starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

USUAL = 10.0
"""Seconds of what says nothing."""


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The file with the longest test first; in a file as they were."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    return [item for together in sorted(files.values(), key=_seconds)[::-1] for item in together]


def _seconds(together: Sequence[pytest.Item]) -> float:
    marks = [mark for item in together for mark in item.iter_markers("takes")]
    return max((float(mark.args[0]) for mark in marks), default=USUAL)
