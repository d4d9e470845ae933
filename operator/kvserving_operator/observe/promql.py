"""Queries to a Prometheus for the pages of agents, and what its answers are. Pure.

Raw samples are asked for (range vectors), because they alone have the time at which they were
scraped: an instant vector shows a number that is minutes old as one of now. All samples of one
scrape have one time, so what an agent said at one moment can be put together again.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

PREFIX: Final = "kvserving_agent_"
LOOK_BACK: Final = 150
"""Seconds: what was scraped before is missing, and a scrape interval is at most half of it."""
SUMS_BACK: Final = 300
"""Seconds of sums: of each two scrapes in them there is one sample, known by its serial number."""

_STATE: Final = (
    "engine_info|engine_up|engine_hung|restarts_total|scrape_age_seconds|capability|control_info|"
    "control_value"
)
_SUMS: Final = (
    "engine_info|control_info|loads_total|loaded_tokens_total|load_.+_total|load_serial|lone_loads?_.+|"
    "noticed_loads?_.+|large_step.+"
)
_MOST_LABELS: Final = 64
_MOST_TEXT: Final = 256


class MalformedError(ValueError):
    """An answer is none of Prometheus' query API."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, and its samples as (second, value), rising in time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """The metric's name without what all have in common."""
        return self.labels.get("__name__", "").removeprefix(PREFIX)


def queries(namespace: str, pods: Iterable[str]) -> tuple[str, ...]:
    """The queries that give all there is of these pods, one for each kind of family.

    Each asks for `engine_info` too, which no page lacks: by it one knows up to which scrape a query
    was answered, when the server scrapes on between two.
    """
    where = f'namespace="{namespace}",pod=~"{_pattern(pods)}"'
    return (
        _query(_STATE, where, LOOK_BACK),
        _query("engine_info|engine_number|control_counter", where, LOOK_BACK),
        _query("engine_info|engine_latency_seconds_(bucket|sum)", where, LOOK_BACK),
        _query(_SUMS, where, SUMS_BACK),
    )


def _query(names: str, where: str, seconds: int) -> str:
    return f'{{__name__=~"{PREFIX}({names})",{where}}}[{seconds}s]'


def _pattern(pods: Iterable[str]) -> str:
    """A pattern for the pods and few others: their workloads' names and any ordinal.

    A list of pods would not fit into an address.
    """
    stems = {pod.rpartition("-")[0] if pod.rpartition("-")[2].isdigit() else pod for pod in pods}
    # Names are of letters, digits, dashes and dots, of which the last mean something here.
    listed = "|".join(sorted(stem.replace(".", "[.]") for stem in stems))
    return f"({listed})(-[0-9]+)?"


def parse_time(body: bytes) -> float:
    """The answer to `time()`: the second that it is for the server."""
    kind, result = _data(body)
    if kind != "scalar" or not isinstance(result, list) or len(result) != 2:
        raise MalformedError("time() is answered with no number")
    value = _value(result[1])
    if value is None:
        raise MalformedError("time() is answered with no number")
    return value


def parse_matrix(body: bytes) -> list[Series]:
    """The series of an answer; samples that are no number (NaN, infinite) are left out."""
    kind, result = _data(body)
    if kind != "matrix" or not isinstance(result, list):
        raise MalformedError("a range is answered with no matrix")
    return [series for series in map(_series, result) if series is not None]


def _data(body: bytes) -> tuple[object, object]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedError("the answer is not JSON") from None
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        raise MalformedError("the answer has no status success")
    data = answer.get("data")
    if not isinstance(data, Mapping):
        raise MalformedError("the answer has no data")
    return data.get("resultType"), data.get("result")


def _series(given: object) -> Series | None:
    if not isinstance(given, Mapping):
        return None
    labels, values = given.get("metric"), given.get("values")
    if not isinstance(labels, Mapping) or not isinstance(values, list):
        return None
    if len(labels) > _MOST_LABELS:
        return None
    texts = {str(k): v[:_MOST_TEXT] for k, v in labels.items() if isinstance(v, str)}
    return Series(texts, tuple(_points(values)))


def _points(values: list[Any]) -> Iterator[tuple[float, float]]:
    last = -math.inf
    for pair in values:
        if not isinstance(pair, list) or len(pair) != 2:
            continue
        at, value = pair[0], _value(pair[1])
        if isinstance(at, bool) or not isinstance(at, int | float) or not last < at < _LATEST:
            continue
        if value is not None:
            last = float(at)
            yield last, value


_LATEST: Final = 1e12
_NUMBER: Final = re.compile(r"[-+0-9.eE]{1,40}")


def _value(text: object) -> float | None:
    """A sample's value, which is a text; None for what is no finite number."""
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
