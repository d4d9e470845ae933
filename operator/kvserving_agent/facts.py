"""What is known of the engine, turned into the answer of `GET /v1/facts` (pure).

The answer is one JSON object of 1 to 2.5 KB, and of 2 to 3 KB with a store; the operator reads it,
nobody else should need to:

- `schema`: 1. A consumer refuses another number; keys are only added within one.
- `role`, `podUid`: who is talking.
- `agent`: the agent itself: how many `lives` it has had since its container started, this one
  included, and how the one before ended, `lastEnd` (lives.py; null in the first).
- `engine`: `type`; `up` (true, false, or null when no answer is fresh); `ready` (what /readyz
  says); `version` and `model` (first served name) or null; `startId` (changes with each start of
  the engine process, see identity.py; null while it does not listen) and `startIdSource`;
  `healthAgeSeconds`; `hung` (healthy, but requests run or wait and nothing gets done, see
  progress.py; null when it cannot be told) and `noProgressSeconds`, for how long at least that has
  been so (null unless something runs or waits).
- `drain`: null, or how far the engine is with letting go: `phase` (Settling, Quiet, Lease or Done),
  `reason` of Done, `elapsedSeconds`, `leaseLeftSeconds` (drain.py). `hung` is not told then.
- `capabilities`: names of what the engine can do beyond a stock one, as the store in it says; a
  stock one has none.
- `store`, `hot`: the sharded store and GraniKV; null for an engine that is not told to carry one.
  Else `startId` (of the store: it names what settings are sent to), `closed` (why nothing is loaded
  and nothing stored; null while open), `settings` in force `since` (Unix seconds), `counters` (the
  choice of store.py; busy_share is u, instances of which open_breakers are given up now; one that
  never counted is not there), `recent` loads and steps (states.py; null where there are none),
  the `ageSeconds` of all that, whether it is `stale`, and `lastError` (a Fault) or null after a
  good answer. Without an answer all but lastError are null.
- `scrape`: `ageSeconds` of the numbers, whether they are `stale`, `errors` since the agent started,
  `lastError` (a Fault) or null after a good one.
- `numbers`: by name, all of the scrape and therefore of its age; of a vLLM without a store also
  what its loads and prompts took (series.STOCK_NUMBERS). Missing is not zero: a number that the
  page lacks, or shows as NaN, infinite, negative or absurd in any of its series, is null. All
  belong to the life of the engine that `startId` names: none outlives a restart.
- `latencies`: `request` (whole), and where the engine decodes `firstToken` and `interToken`: a
  prefill answers with its first token. Each is null or `{"count", "sumSeconds", "edges",
  "counts"}` since the engine started, of the scrape's age. Bucket i holds `counts[i]` observations
  above `edges[i]` and not above `edges[i + 1]` (null: no bound); there is one edge more than
  counts. What is outside the edges is empty, so they can be added over pods (latency.py).

Ages count from when the question was sent (so they never understate) on the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kvserving_agent import states
from kvserving_agent.identity import StartId
from kvserving_agent.latency import Histogram
from kvserving_agent.lives import FIRST, Past
from kvserving_agent.progress import Stall
from kvserving_agent.series import Number
from kvserving_agent.states import StoreState
from kvserving_agent.traffic import Traffic

SCHEMA = 1


class Fault(StrEnum):
    """Why a question to the engine failed; the label of the error counters."""

    REFUSED = "Refused"
    NO_CONNECTION = "NoConnection"
    TIMEOUT = "Timeout"
    STATUS = "Status"
    TOO_LARGE = "TooLarge"
    MALFORMED = "Malformed"
    RESTARTED = "Restarted"


UNHEARD = frozenset({Fault.NO_CONNECTION, Fault.TIMEOUT})
"""Nothing was heard of the engine, good or bad: the last answer grows old."""


@dataclass(frozen=True)
class Sample:
    """The numbers of one scrape; None where the page had nothing usable."""

    at: float
    values: Mapping[str, float | None]
    latencies: Mapping[str, Histogram | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the engine answered to a question that was sent at a time (monotonic seconds)."""

    at: float
    good: bool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that is known of one life of the engine, and of the agent's work, at one moment.

    `begun` is when this life, or the agent, began to be watched, `draining` since when the engine
    lets go (None: it serves); monotonic seconds.
    """

    start: StartId | None = None
    health: Answer | None = None
    models: Answer | None = None
    model: str | None = None
    version: str | None = None
    sample: Sample | None = None
    store: StoreState | None = None
    store_error: Fault | None = None
    hot: StoreState | None = None
    hot_error: Fault | None = None
    stall: Stall | None = None
    traffic: Traffic | None = None
    begun: float = 0.0
    draining: float | None = None
    scrape_errors: int = 0
    last_error: Fault | None = None
    stopping: bool = False


def is_up(known: Snapshot, now: float, stale_after: float) -> bool | None:
    """Whether the engine is healthy; None when the last answer is too old to tell."""
    if known.health is None or now - known.health.at > stale_after:
        return None
    return known.health.good


def is_silent(known: Snapshot, now: float, stale_after: float) -> bool:
    """Whether nothing was heard of the engine for so long that nothing will be."""
    last = known.begun if known.health is None else known.health.at
    return now - last > stale_after


def is_ready(known: Snapshot, now: float, stale_after: float) -> bool:
    """Whether the pod may be sent requests: healthy, and it listed a model not long before.

    The list is asked for less often than health. It is measured against the last health answer, so
    that a silent engine is given the same time whenever its list was asked for last.
    """
    health, models = known.health, known.models
    return (
        not known.stopping
        and known.draining is None
        and is_up(known, now, stale_after) is True
        and health is not None
        and models is not None
        and models.good
        and health.at - models.at <= stale_after
    )


def render(
    known: Snapshot,
    *,
    now: float,
    role: str,
    engine_type: str,
    pod_uid: str,
    stale_after: float,
    table: Mapping[str, Number],
    latencies: Iterable[str] = (),
    stores: bool = False,
    hots: bool = False,
    drain: Mapping[str, object] | None = None,
    past: Past = FIRST,
) -> dict[str, object]:
    """The answer of `GET /v1/facts`.

    `table` and `latencies` name what this engine can show, `stores` and `hots` what it is told to
    carry (the sharded store, GraniKV), `drain` how far it is with letting go (None: it serves),
    `past` is what the agent was told of its lives before.
    """
    sample = known.sample
    store = states.render(known.store, known.store_error, now, stale_after)
    hot = states.render(known.hot, known.hot_error, now, stale_after)
    return {
        "schema": SCHEMA,
        "role": role,
        "podUid": pod_uid,
        "agent": {"lives": past.lives, "lastEnd": past.last},
        "engine": {"type": engine_type, **_engine(known, now, stale_after)},
        "drain": drain,
        "capabilities": _capabilities(known),
        "store": store if stores else None,
        "hot": hot if hots else None,
        "scrape": {
            "ageSeconds": _age(sample.at if sample else None, now),
            "stale": now - sample.at > stale_after if sample else None,
            "errors": known.scrape_errors,
            "lastError": known.last_error,
        },
        "numbers": {name: sample.values.get(name) if sample else None for name in table},
        "latencies": {name: _latency(sample, name) for name in latencies},
    }


def _engine(known: Snapshot, now: float, stale_after: float) -> dict[str, object]:
    start = known.start
    return {
        "up": is_up(known, now, stale_after),
        "ready": is_ready(known, now, stale_after),
        "version": known.version,
        "model": known.model,
        "startId": start.value if start else None,
        "startIdSource": start.source.value if start else None,
        "healthAgeSeconds": _age(known.health.at if known.health else None, now),
        **_progress(known, now, stale_after),
    }


def _progress(known: Snapshot, now: float, stale_after: float) -> dict[str, object]:
    sample, stall = known.sample, known.stall
    fresh = sample is not None and now - sample.at <= stale_after
    if not fresh or sample is None or not is_up(known, now, stale_after):
        return {"hung": None, "noProgressSeconds": None}
    if stall is None:
        idle = sample.values.get("waiting") == 0 and not sample.values.get("running")
        return {"hung": False if idle else None, "noProgressSeconds": None}
    return {"hung": stall.hung, "noProgressSeconds": _age(stall.since, sample.at)}


def _capabilities(known: Snapshot) -> list[str]:
    present = (state.capabilities for state in (known.store, known.hot) if state is not None)
    return sorted({name for names in present for name in names})


def _latency(sample: Sample | None, name: str) -> dict[str, object] | None:
    found = sample.latencies.get(name) if sample else None
    return None if found is None else found.data()


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else round(now - at, 1)
