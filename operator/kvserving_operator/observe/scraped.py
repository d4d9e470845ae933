"""From the series of agents' pages to the facts of engines. Pure.

The answer of `GET /v1/facts` is put together again and read as if the agent had sent it
(measure.parse), so there is one check of what can be true. What is not a series at the time of the
scrape is missing. Loads and steps are sums on a page: of each two scrapes their differences make
one record of a mean load and one of a mean step.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

from kvserving_operator.fit.records import LOAD_FIELDS, STEP_FIELDS, STEP_TOKENS
from kvserving_operator.measure import SCHEMA, EngineFacts, parse
from kvserving_operator.observe.promql import Series

_CLOCKS: Final = 5.0
"""Seconds by which a scrape may lie in the future: several servers have several clocks."""
_OWN: Final = (
    "role", "pod_uid", "start_id", "version", "name", "latency", "le",
    "control", "mode", "closed", "last_error", "reason",
)  # fmt: skip
"""Labels of the agent's. A server that has them for its own calls ours exported_."""

_SUMS: Final = ("_total", "_serial")

Labels = Mapping[str, str]
Own = tuple[tuple[str, str], ...]
Page = Mapping[str, Sequence[tuple[Labels, float]]]
"""By name: labels of the agent's own, and values, of one scrape."""


@dataclass(slots=True)
class _Target:
    """One thing that is scraped: a pod's agent, seen by one job of one server."""

    series: list[tuple[int, Series]]
    """Each with the query that it answers."""

    def moment(self, queries: int) -> float:
        """The latest scrape that the answers to all queries know of; 0 where there is none."""
        latest: dict[int, float] = {}
        for query, series in self.series:
            if series.name == "engine_info":
                latest[query] = max(latest.get(query, 0.0), series.points[-1][0])
        return min(latest.values()) if len(latest) == queries else 0.0

    def page(self, at: float) -> Page:
        """What was on the page that was scraped then."""
        found: dict[str, dict[Own, float]] = defaultdict(dict)
        for _, series in self.series:
            # Mostly it is the last one.
            value = next((value for when, value in reversed(series.points) if when == at), None)
            if value is not None:
                # By labels, because two queries ask for what belongs to both.
                found[series.name][_own(series.labels)] = value
        return {
            name: [(dict(own), value) for own, value in values.items()]
            for name, values in found.items()
        }

    def sums(self, start: str | None) -> list[dict[str, float]]:
        """The sums of each scrape of one start of the store, rising in time."""
        found: dict[float, dict[str, float]] = defaultdict(dict)
        current: set[float] = set()
        for _, series in self.series:
            if series.name.endswith(_SUMS):
                for at, value in series.points:
                    found[at][series.name] = value
            elif series.name == "control_info":
                own = dict(_own(series.labels))
                if own.get("control") == "store" and own.get("start_id") == start:
                    current.update(at for at, _ in series.points)
        return [found[at] for at in sorted(current & found.keys())]


def facts_of(
    answers: Sequence[Iterable[Series]], *, namespace: str, pods: Mapping[str, str], now: float
) -> dict[str, EngineFacts | None]:
    """The facts of each pod; None for one of which nothing current was scraped.

    Args:
        answers: The series that each query found.
        namespace: Of the pods.
        pods: Uid by name. Another pod that had the name before is not asked about.
        now: The server's second.
    """
    targets = _targets(answers, namespace)
    return {
        pod: _facts(
            pod, uid, [(each.moment(len(answers)), each) for each in targets.get(pod, ())], now
        )
        for pod, uid in pods.items()
    }


def _targets(
    answers: Sequence[Iterable[Series]], namespace: str
) -> Mapping[str, Iterable[_Target]]:
    found: dict[str, dict[object, _Target]] = defaultdict(dict)
    for query, answer in enumerate(answers):
        for series in answer:
            if series.labels.get("namespace") != namespace or not series.points:
                continue
            key = frozenset(
                (name, value)
                for name, value in series.labels.items()
                if name != "__name__" and name.removeprefix("exported_") not in _OWN
            )
            of_pod = found[series.labels.get("pod", "")]
            of_pod.setdefault(key, _Target([])).series.append((query, series))
    return {pod: targets.values() for pod, targets in found.items()}


def _own(labels: Labels) -> Own:
    named = ((name, labels.get(f"exported_{name}") or labels.get(name)) for name in _OWN)
    return tuple((name, value) for name, value in named if value)


def _facts(
    pod: str, uid: str, targets: Iterable[tuple[float, _Target]], now: float
) -> EngineFacts | None:
    """Of several targets the one scraped last counts: two jobs may scrape one agent."""
    for at, target in sorted(targets, key=itemgetter(0), reverse=True):
        page = target.page(at)
        info = next((own for own, _ in page.get("engine_info", ())), None)
        if info is not None and info.get("pod_uid") == uid and at <= now + _CLOCKS:
            return parse(pod, _answer(target, page, info, max(0.0, now - at)))
    return None


def _answer(target: _Target, page: Page, info: Labels, age: float) -> dict[str, Any]:
    scraped = _single(page, "scrape_age_seconds")
    return {
        "schema": SCHEMA,
        "role": info.get("role"),
        "podUid": info.get("pod_uid"),
        # One that has never ended has no series of its ends.
        "agent": {"lives": 1 + sum(ended for _, ended in page.get("restarts_total", ()))},
        "engine": {
            "up": _truth(page, "engine_up"),
            "hung": _truth(page, "engine_hung"),
            "startId": info.get("start_id"),
            "version": info.get("version"),
        },
        "capabilities": [own["name"] for own, _ in page.get("capability", ()) if "name" in own],
        "scrape": {"ageSeconds": None if scraped is None else scraped + age},
        "numbers": dict(_by_name(page, "engine_number")),
        "latencies": dict(_latencies(page)),
        "store": _control(target, page, "store", age),
        "hot": _control(target, page, "hot", age),
    }


def _single(page: Page, name: str) -> float | None:
    return next((value for _, value in page.get(name, ())), None)


def _truth(page: Page, name: str) -> bool | None:
    value = _single(page, name)
    return None if value is None else value != 0


def _by_name(page: Page, family: str, **where: str) -> Iterator[tuple[str, float]]:
    for own, value in page.get(family, ()):
        if "name" in own and all(own.get(name) == text for name, text in where.items()):
            yield own["name"], value


def _latencies(page: Page) -> Iterator[tuple[str, dict[str, Any]]]:
    sums = {own.get("latency"): value for own, value in page.get("engine_latency_seconds_sum", ())}
    below: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for own, value in page.get("engine_latency_seconds_bucket", ()):
        below[own.get("latency", "")].append((_bound(own.get("le", "")), value))
    for name, points in below.items():
        points.sort()
        edges: list[float | None] = [edge for edge, _ in points]
        counts = [after - before for (_, before), (_, after) in pairwise(points)]
        if not edges or points[-1][0] != _ENDLESS:
            continue
        edges[-1] = None
        while counts and counts[-1] == 0:
            del counts[-1], edges[-1]
        if not counts:
            edges = []
        yield (
            name,
            {
                "count": points[-1][1],
                "sumSeconds": sums.get(name),
                "edges": edges,
                "counts": counts,
            },
        )


_ENDLESS: Final = float("inf")


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _control(target: _Target, page: Page, control: str, age: float) -> dict[str, Any] | None:
    info = next((o for o, _ in page.get("control_info", ()) if o.get("control") == control), None)
    if info is None:
        return None
    values = dict(_by_name(page, "control_value", control=control))
    said = values.get("ageSeconds")
    model = {k.removeprefix("model."): v for k, v in values.items() if k.startswith("model.")}
    settings = {"mode": info.get("mode"), "model": model or None, **values}
    return {
        "startId": info.get("start_id"),
        "closed": info.get("closed"),
        "lastError": info.get("last_error"),
        "settings": settings if "start_id" in info else None,
        "since": values.get("since"),
        "counters": dict(_by_name(page, "control_counter", control=control)),
        "recent": _recent(target, info.get("start_id")) if control == "store" else None,
        "ageSeconds": None if said is None else said + age,
        "stale": values["stale"] != 0 if "stale" in values else None,
    }


def _recent(target: _Target, start: str | None) -> dict[str, Any] | None:
    """A mean load and a mean step of each two scrapes of one start of the store."""
    pairs = list(pairwise(target.sums(start)))
    loads = [row for row in (_load(*pair) for pair in pairs) if row is not None]
    steps = [row for row in (_step(*pair) for pair in pairs) if row is not None]
    return {
        "loads": {"fields": list(LOAD_FIELDS), "rows": loads},
        "steps": {"fields": list(STEP_FIELDS), "rows": steps},
    }


def _grown(before: Mapping[str, float], after: Mapping[str, float], name: str) -> float:
    """By how much a sum grew; 0 where it is not on both pages."""
    total = f"{name}_total"
    return after[total] - before[total] if total in before and total in after else 0.0


def _load(before: Mapping[str, float], after: Mapping[str, float]) -> list[float | None] | None:
    """One row in the order of LOAD_FIELDS; None where nothing was loaded, or the agent restarted.

    An agent that has restarted adds up anew, and what it finds in the ring once more: then a sum
    has shrunk, or more were added than the numbers of the loads grew by.
    """
    loads = _grown(before, after, "loads")
    numbered = after.get("load_serial", -1.0) - before.get("load_serial", -1.0)
    if not 0 < loads <= numbered:
        return None
    alone, noticed = _grown(before, after, "lone_loads"), _grown(before, after, "noticed_loads")
    step = _grown(before, after, "lone_load_step_seconds") / alone if alone > 0 else 0.0
    fixed = _grown(before, after, "noticed_load_fixed_seconds") / noticed if noticed > 0 else None
    return [
        after["load_serial"],
        _grown(before, after, "loaded_tokens") / loads,
        _grown(before, after, "load_read_bytes") / loads,
        fixed or 0.0,
        0.0,
        _grown(before, after, "load_served_seconds") / loads,
        None if fixed is None else 0.0,
        step,
        0.0,
        # Of a load that was not alone in its step nothing follows for the engine's time.
        1.0 if alone > 0 else 2.0,
    ]


def _step(before: Mapping[str, float], after: Mapping[str, float]) -> list[float] | None:
    """One row in the order of STEP_FIELDS; likewise."""
    steps = _grown(before, after, "large_steps")
    numbered = after.get("large_step_serial", -1.0) - before.get("large_step_serial", -1.0)
    if not 0 < steps <= numbered:
        return None
    tokens = _grown(before, after, "large_step_tokens") / steps
    if tokens < STEP_TOKENS:
        return None
    seconds = _grown(before, after, "large_step_seconds") / steps
    return [after["large_step_serial"], tokens, seconds]
