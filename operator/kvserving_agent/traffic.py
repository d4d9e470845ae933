"""Whether anything is under way in the engine, and when a request ended last (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GAUGES = ("running", "waiting")
_SERVED = ("requestsFinished", "promptTokens", "generationTokens")


@dataclass(frozen=True)
class Traffic:
    """What the scrapes of one life of the engine have shown.

    Attributes:
        idle_since: The first of the scrapes (monotonic seconds, when it was asked for) that showed
            nothing under way and, since then, no request that came and went; None while busy.
        finished: Requests that ended so far; None until the page tells.
        finished_at: The scrape that showed the latest of them, which is never before its end; None
            when none has ended.
    """

    idle_since: float | None = None
    finished: float | None = None
    finished_at: float | None = None


def follow(before: Traffic | None, values: Mapping[str, float | None], at: float) -> Traffic:
    """What one more scrape makes of it.

    Args:
        before: What the scrape before left; None: this is the first of this life that is seen, so
            requests that ended before it may have ended just now.
        values: Numbers of this one, by their names in facts.
        at: When it was asked for, monotonic seconds.
    """
    known = before or Traffic()
    told = values.get("requestsFinished")
    finished = known.finished if told is None else told
    ended = bool(finished) and finished != known.finished
    if not _is_idle(values):
        idle_since = None
    elif known.idle_since is None or ended:
        idle_since = at
    else:
        idle_since = known.idle_since
    return Traffic(idle_since, finished, at if ended else known.finished_at)


def _is_idle(values: Mapping[str, float | None]) -> bool:
    """Nothing runs and nothing waits.

    vLLM shows its gauges only after its first request: without them an engine that has never
    served is idle, and one that has served may be anything.
    """
    served = any(values.get(name) for name in _SERVED)
    return all(value == 0 or (value is None and not served) for value in map(values.get, _GAUGES))
