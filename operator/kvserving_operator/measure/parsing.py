"""From an agent's answer to ``EngineFacts``, whatever came. Pure.

The answer comes over the network from a pod that may be broken or somebody else's. Whatever is not
what it should be is missing afterwards, never an error, and what is kept is bounded.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvserving_operator.fit import Recent, parse_recent
from kvserving_operator.measure.facts import (
    LATENCIES,
    NUMBERS,
    Aged,
    Bucket,
    ControlFacts,
    ControlSettings,
    EngineFacts,
    Latency,
    ModelNumbers,
)

SCHEMA: Final = 1
MOST_BYTES: Final = 64 * 1024
"""Of one answer: some ten times what an agent says."""
_LARGEST: Final = math.nextafter(2.0**63, 0.0)
"""No count of tokens, bytes or requests reaches it."""
_OLDEST: Final = 1e9
_MOST_SECONDS: Final = 1e12
_MOST_WORDS: Final = 64
_MOST_COUNTERS: Final = 256
_MOST_BUCKETS: Final = 64
_MOST_ROWS: Final = 64
_LONGEST: Final = 80
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]{1,80}")
_ROLES: Final = frozenset({"prefill", "decode"})
_RATIOS: Final = frozenset({"kvCacheUsage"})


def parse_body(pod: str, body: bytes, *, uid: str) -> EngineFacts | None:
    """The facts of a pod from its agent's answer; None where it is none, or another pod's.

    An address is given to another pod once its own is gone, and the answer tells whose it is.
    """
    try:
        answer = json.loads(body) if len(body) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, Mapping) or answer.get("podUid") != uid:
        return None
    return parse(pod, answer)


def parse(pod: str, answer: object) -> EngineFacts | None:
    """The facts of a pod from JSON data; None where it is no answer of this schema."""
    if not isinstance(answer, Mapping) or answer.get("schema") != SCHEMA:
        return None
    engine, role = _mapping(answer.get("engine")), answer.get("role")
    age = _number(_mapping(answer.get("scrape")).get("ageSeconds"), _OLDEST)
    return EngineFacts(
        pod=pod,
        role=role if isinstance(role, str) and role in _ROLES else None,
        start_id=_word(engine.get("startId")),
        up=_truth(engine.get("up")),
        hung=_truth(engine.get("hung")),
        lives=_whole(_mapping(answer.get("agent")).get("lives")),
        version=_word(engine.get("version")),
        capabilities=_words(answer.get("capabilities")),
        numbers=dict(_numbers(_mapping(answer.get("numbers")), age)),
        latencies=dict(_latencies(_mapping(answer.get("latencies")), age)),
        scrape_age_seconds=age,
        store=_control(answer.get("store")),
        hot=_control(answer.get("hot")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None


def _words(value: object) -> frozenset[str]:
    listed = value[:_MOST_WORDS] if isinstance(value, list) else []
    return frozenset(word for word in map(_word, listed) if word is not None)


def _number(value: object, most: float = _LARGEST, least: float = 0.0) -> float | None:
    """A finite number between ``least`` and ``most``; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN compares as false; an int may be too long for a float, so it is compared first.
    return float(value) if least <= value <= most else None


def _whole(value: object, most: float = _LARGEST) -> int | None:
    found = _number(value, most)
    return None if found is None or not found.is_integer() else int(found)


def _numbers(given: Mapping[str, Any], age: float | None) -> Iterator[tuple[str, Aged]]:
    for name in NUMBERS:
        value = _number(given.get(name), 1.0 if name in _RATIOS else _LARGEST)
        if value is not None and age is not None:
            yield name, Aged(value=value, age_seconds=age)


def _latencies(given: Mapping[str, Any], age: float | None) -> Iterator[tuple[str, Latency]]:
    for name in LATENCIES:
        found = None if age is None else _latency(_mapping(given.get(name)), age)
        if found is not None:
            yield name, found


def _latency(given: Mapping[str, Any], age: float) -> Latency | None:
    count, buckets = _whole(given.get("count")), _buckets(given.get("edges"), given.get("counts"))
    if count is None or buckets is None or count != sum(b[2] for b in buckets):
        return None
    seconds = _number(given.get("sumSeconds"))
    return Latency(count=count, seconds=seconds, buckets=buckets, age_seconds=age)


def _buckets(edges: object, counts: object) -> tuple[Bucket, ...] | None:
    """Those that hold any; None if one is wrong: a part of a histogram is another histogram."""
    if not isinstance(edges, list) or not isinstance(counts, list) or len(counts) > _MOST_BUCKETS:
        return None
    if len(edges) != (len(counts) + 1 if counts else 0):
        return None
    rows: list[Bucket] = []
    for lower, upper, given in zip(edges, edges[1:], counts, strict=False):
        low, high, count = _number(lower, _MOST_SECONDS), _edge(upper), _whole(given)
        if low is None or high is None or count is None or high <= low:
            return None
        if count:
            rows.append((low, None if math.isinf(high) else high, count))
    return tuple(rows)


def _edge(upper: object) -> float | None:
    return math.inf if upper is None else _number(upper, _MOST_SECONDS)


def _control(given: object) -> ControlFacts | None:
    if not isinstance(given, Mapping):
        return None
    return ControlFacts(
        start_id=_word(given.get("startId")),
        closed=_text(given.get("closed")),
        settings=parse_settings(given.get("settings")),
        since=_number(given.get("since"), _MOST_SECONDS),
        counters=dict(_counters(_mapping(given.get("counters")))),
        recent=_recent(given.get("recent")),
        age_seconds=_number(given.get("ageSeconds"), _OLDEST),
        stale=_truth(given.get("stale")),
        last_error=_text(given.get("lastError")),
    )


def parse_settings(given: object) -> ControlSettings | None:
    """Settings as a control port says them; None where there are none."""
    if not isinstance(given, Mapping):
        return None
    return ControlSettings(
        mode=_word(given.get("mode")),
        min_tokens=_whole(given.get("minTokens")),
        model=_model(_mapping(given.get("model"))),
        hot_percent=_whole(given.get("hotPercent"), 100),
        hot_percent_wanted=_whole(given.get("hotPercentWanted"), 100),
    )


def _model(given: Mapping[str, Any]) -> ModelNumbers | None:
    rate, size, bandwidth, engine, request = (
        _number(given.get(name)) for name in ("R", "s", "B", "te", "tw")
    )
    if rate is None or size is None or bandwidth is None or engine is None or request is None:
        return None
    return rate, size, bandwidth, engine, request


def _counters(given: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in list(given.items())[:_MOST_COUNTERS]:
        word, number = _word(name), _number(value)
        if word is not None and number is not None:
            yield word, number


def _recent(given: object) -> Recent | None:
    if not isinstance(given, Mapping):
        return None
    rings = {name: _newest(given.get(name)) for name in ("loads", "steps")}
    return parse_recent(rings)


def _newest(ring: object) -> object:
    """A ring with its newest rows alone: no agent passes on more."""
    if not isinstance(ring, Mapping) or not isinstance(ring.get("rows"), list):
        return ring
    return {"fields": ring.get("fields"), "rows": ring["rows"][-_MOST_ROWS:]}
