"""Facts as metrics, for operators that ask a Prometheus instead of each agent (pure).

What `GET /v1/facts` says is on `GET /metrics` too, by one family for each kind of thing; what is
null there has no series. Of a scrape all series have one time, so that a reader gets all of one
moment. The recent loads and steps are sums here (sums.py).

Unlike facts the page is open to whoever reaches the port, as an engine's own metrics are: it
tells how the engine fares, and no secret. The texts among its labels come from the engine, are
words of at most 64 characters, and change with a start or a version of the engine, not with its
traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from kvserving_agent.sums import NAMES, Sums

_P = "kvserving_agent_"
_MOST_WORDS = 64
_LONGEST = 64
CONTROLS = ("store", "hot")


def families(facts: Mapping[str, Any], sums: Sums) -> Iterator[Metric]:
    """The families of an answer of facts, and of the sums of its store's start."""
    yield _info(facts)
    yield from _states(facts)
    yield from _numbers(facts)
    yield _latencies(facts)
    yield from _controls(facts)
    store = facts["store"]
    if store is not None and store["startId"] and store["startId"] == sums.start:
        yield from _sums(sums)


def _info(facts: Mapping[str, Any]) -> Metric:
    engine = facts["engine"]
    family = GaugeMetricFamily(
        _P + "engine_info",
        "Which engine this is; an empty label is not known at present.",
        labels=["role", "pod_uid", "start_id", "version"],
    )
    words = (facts["role"], facts["podUid"], engine["startId"], engine["version"])
    family.add_metric([_word(word) for word in words], 1.0)
    return family


def _states(facts: Mapping[str, Any]) -> Iterator[Metric]:
    engine = facts["engine"]
    known = {
        "engine_up": ("1 when the last fresh health answer was good.", engine["up"]),
        "engine_hung": ("1 when healthy, but there is work and nothing is done.", engine["hung"]),
        "ready": ("1 when /readyz answers 200.", engine["ready"]),
        "health_age_seconds": ("Age of the last health answer.", engine["healthAgeSeconds"]),
        "no_progress_seconds": (
            "For how long there has been work and nothing was done.",
            engine["noProgressSeconds"],
        ),
        "scrape_age_seconds": ("Age of the engine's numbers.", facts["scrape"]["ageSeconds"]),
    }
    for name, (text, value) in known.items():
        yield GaugeMetricFamily(_P + name, text, value=None if value is None else float(value))
    capability = GaugeMetricFamily(
        _P + "capability", "What the engine can do beyond a stock one.", labels=["name"]
    )
    for name in facts["capabilities"][:_MOST_WORDS]:
        capability.add_metric([_word(name)], 1.0)
    yield capability


def _numbers(facts: Mapping[str, Any]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        _P + "engine_number",
        "Numbers of the engine's own metrics page, of the age of scrape_age_seconds.",
        labels=["name"],
    )
    for name, value in facts["numbers"].items():
        if value is not None:
            family.add_metric([name], value)
    yield family


def _latencies(facts: Mapping[str, Any]) -> Metric:
    family = HistogramMetricFamily(
        _P + "engine_latency_seconds",
        "Latencies by the engine's own buckets, from the first that holds any to the last.",
        labels=["latency"],
    )
    for name, found in facts["latencies"].items():
        if found is not None:
            family.add_metric([name], _cumulative(found), found["sumSeconds"])
    return family


def _cumulative(found: Mapping[str, Any]) -> list[tuple[str, float]]:
    edges, counts = found["edges"], found["counts"]
    total, buckets = 0, [(str(float(edges[0])), 0.0)] if edges else []
    for upper, count in zip(edges[1:], counts, strict=True):
        total += count
        if upper is not None:
            buckets.append((str(float(upper)), float(total)))
    return [*buckets, ("+Inf", float(total))]


def _controls(facts: Mapping[str, Any]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        _P + "control_info",
        "A control port in the engine; an empty label is not known, or nothing to tell.",
        labels=["control", "start_id", "mode", "closed", "last_error"],
    )
    values = GaugeMetricFamily(
        _P + "control_value",
        "What a control port says of itself: age, settings and the model in force.",
        labels=["control", "name"],
    )
    counters = GaugeMetricFamily(
        _P + "control_counter", "Its counters since it started.", labels=["control", "name"]
    )
    for control in CONTROLS:
        said = facts[control]
        if said is None:
            continue
        settings = said["settings"] or {}
        words = (said["startId"], settings.get("mode"), said["closed"], said["lastError"])
        info.add_metric([control, *(_word(word) for word in words)], 1.0)
        for name, value in _values(said, settings):
            values.add_metric([control, name], value)
        for name, value in (said["counters"] or {}).items():
            counters.add_metric([control, name], value)
    yield from (info, values, counters)


def _values(said: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    known = {
        "ageSeconds": said["ageSeconds"],
        "stale": said["stale"],
        "since": said["since"],
        **{name: settings.get(name) for name in ("minTokens", "hotPercent", "hotPercentWanted")},
        **{f"model.{name}": value for name, value in (settings.get("model") or {}).items()},
    }
    return ((name, float(value)) for name, value in known.items() if value is not None)


def _sums(sums: Sums) -> Iterator[Metric]:
    serials = {"load_serial": sums.load_serial, "large_step_serial": sums.step_serial}
    for name, serial in serials.items():
        yield GaugeMetricFamily(_P + name, "Number of the newest that was seen.", value=serial)
    for name, text in NAMES.items():
        yield CounterMetricFamily(_P + name, text, value=sums.totals[name])


def _word(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""
