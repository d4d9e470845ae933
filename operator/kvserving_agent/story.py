"""The log's account of an engine: a line for each change that facts show (pure but for the loop).

Facts and metrics tell how things are; who comes an hour later asks how they became so. That an
engine started, and what /health said to it, is told where it is found out (watch.py). Here is what
follows from several answers or from none: an engine that is silent or hung, numbers that grow old,
a store that closes or does not answer, a drain from phase to phase, and readiness with its cause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PERIOD = 1.0
"""Seconds between two looks."""

_AT_FIRST: Mapping[str, str] = {
    "engine": "answers",
    "work": "gets done",
    "metrics": "fresh",
    "drain": "none",
    "ready": "no (engine not heard of)",
}
"""What needs no line when the agent starts."""
_GOOD = frozenset({"answers", "gets done", "fresh", "open"})
_NEUTRAL = frozenset({"drain", "ready"})

_log = logging.getLogger(__name__)

Facts = Mapping[str, Any]


async def tell_forever(facts: Callable[[], Facts]) -> None:
    """The loop."""
    told: Mapping[str, str] = _AT_FIRST
    while True:
        told = tell(told, facts())
        await asyncio.sleep(PERIOD)


def tell(told: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """Log how each topic differs from what was told last; what is told now."""
    now = {**told, **dict(_states(facts))}
    for topic, state in now.items():
        was = told.get(topic)
        if state != was:
            # What is so from the start on, such as a store that is starting, is no trouble yet.
            good = topic in _NEUTRAL or state in _GOOD or was is None
            extra = {"was": was, "startId": facts["engine"]["startId"], **_more(topic, facts)}
            _log.log(logging.INFO if good else logging.WARNING, "%s: %s", topic, state, extra=extra)
    return now


def _states(facts: Facts) -> Iterator[tuple[str, str]]:
    """By topic; one of which nothing can be said at present is left out."""
    engine, drain = facts["engine"], facts["drain"]
    if engine["hung"] is not None:
        yield "work", "hung" if engine["hung"] else "gets done"
    if engine["up"]:
        yield "engine", "answers"
    elif engine["up"] is None and engine["healthAgeSeconds"] is not None:
        yield "engine", "silent"
    if engine["up"] and facts["scrape"]["stale"] is not None:
        yield "metrics", "stale" if facts["scrape"]["stale"] else "fresh"
    for control in ("store", "hot"):
        # While the engine starts or is gone, that its ports are silent says nothing more.
        if facts[control] is not None and engine["up"]:
            yield from ((control, state) for state in _control(facts[control]))
    yield "drain", _drain(drain)
    yield "ready", "yes" if engine["ready"] else f"no ({_why(facts)})"


def _control(said: Mapping[str, Any]) -> Iterator[str]:
    if said["lastError"] is not None:
        yield f"no answer ({said['lastError']})"
    elif said["startId"] is not None:
        closed = f"closed ({said['closed']})" if said["closed"] else "open"
        yield "stale" if said["stale"] else closed


def _drain(drain: Mapping[str, Any] | None) -> str:
    if drain is None:
        return "none"
    return f"{drain['phase']} ({drain['reason']})" if drain["reason"] else str(drain["phase"])


def _why(facts: Facts) -> str:
    engine = facts["engine"]
    if facts["drain"] is not None:
        return "draining"
    if engine["up"] is None:
        return "engine not heard of"
    return "no model listed, or the agent stops" if engine["up"] else "engine down"


def _more(topic: str, facts: Facts) -> Mapping[str, object]:
    """The numbers that one would look up next."""
    engine, scrape, drain = facts["engine"], facts["scrape"], facts["drain"]
    if topic in {"engine", "work"}:
        numbers = {name: facts["numbers"].get(name) for name in ("running", "waiting")}
        ages = {name: engine[name] for name in ("healthAgeSeconds", "noProgressSeconds")}
        return {**ages, **numbers}
    if topic == "metrics":
        return {"ageSeconds": scrape["ageSeconds"], "lastError": scrape["lastError"]}
    if topic == "drain" and drain is not None:
        return {"elapsedSeconds": drain["elapsedSeconds"]}
    return {}
