"""Prometheus metrics of the operator itself, all named `kvserving_operator_*`.

Labels are bounded by the code (verbs, kinds, outcomes, phases): never a namespace, a name or a
message. Metrics about one KVServing's engines belong to the agents, not here; those about its tier,
which no agent looks at as a whole, are `tier_metrics`.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from kvserving_operator import __version__
from kvserving_operator.kube.paths import Key
from kvserving_operator.kube.transport import Call
from kvserving_operator.reconcile.tuning import Look

# Creation times double the number of series and nobody asks for them.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

BUILD = Info("kvserving_operator_build", "Version of the operator.", registry=REGISTRY)
BUILD.info({"version": __version__})
PASSES = Counter(
    "kvserving_operator_passes_total",
    "Reconcile passes, by outcome: success, failed (partly done), error, fenced.",
    ["outcome"],
    registry=REGISTRY,
)
PASS_SECONDS = Histogram(
    "kvserving_operator_pass_seconds",
    "Wall time of one reconcile pass, waiting for the API server included.",
    buckets=_BUCKETS,
    registry=REGISTRY,
)
PARTS_FAILED = Counter(
    "kvserving_operator_pass_parts_failed_total",
    "Parts of passes that failed by themselves while the pass went on; the log has the cause.",
    ["part"],
    registry=REGISTRY,
)
QUEUE_LATENCY = Histogram(
    "kvserving_operator_queue_latency_seconds",
    "Time a key waited beyond the moment it was wanted.",
    buckets=_BUCKETS,
    registry=REGISTRY,
)
API_REQUESTS = Counter(
    "kvserving_operator_api_requests_total",
    "Request attempts to the API server; code is the HTTP status class, or none without an answer.",
    ["verb", "resource", "code"],
    registry=REGISTRY,
)
API_SECONDS = Histogram(
    "kvserving_operator_api_request_seconds",
    "Duration of request attempts to the API server.",
    ["verb"],
    buckets=_BUCKETS,
    registry=REGISTRY,
)
WATCH_EVENTS = Counter(
    "kvserving_operator_watch_events_total",
    "Watch events, by resource and whether they woke a pass or were noise.",
    ["resource", "effect"],
    registry=REGISTRY,
)
LEADER = Gauge(
    "kvserving_operator_leader", "1 while this process leads, else 0.", registry=REGISTRY
)
STATUS_WRITES = Counter(
    "kvserving_operator_status_writes_total", "Writes of KVServing status.", registry=REGISTRY
)
OBJECTS = Gauge(
    "kvserving_operator_objects",
    "KVServing objects that this process reconciles, by phase.",
    ["phase"],
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "kvserving_operator_queue_depth",
    "Keys that wait for a pass, delayed ones included.",
    registry=REGISTRY,
)
QUEUE_DUE = Gauge(
    "kvserving_operator_queue_due",
    "Keys that wait for nothing but a worker.",
    registry=REGISTRY,
)
QUEUE_ADDS = Gauge(
    "kvserving_operator_queue_adds", "Requests for a pass since the start.", registry=REGISTRY
)
QUEUE_RETRIES = Gauge(
    "kvserving_operator_queue_retries", "Backoffs since the start.", registry=REGISTRY
)
TUNING_LOOKS = Counter(
    "kvserving_operator_tuning_looks_total",
    "Looks of the control loop at engines, by what followed: a reason of the tuner.",
    ["reason"],
    registry=REGISTRY,
)
TUNING_DECISIONS = Counter(
    "kvserving_operator_tuning_decisions_total",
    "Decisions of the tuner, by knob and whether they were put in force or only recommended.",
    ["knob", "effect"],
    registry=REGISTRY,
)
TUNING_SETTINGS = Counter(
    "kvserving_operator_tuning_settings_total",
    "Settings sent to engines, by outcome: in_force, failed.",
    ["outcome"],
    registry=REGISTRY,
)
EVENTS_FAILED = Counter(
    "kvserving_operator_events_failed_total",
    "Kubernetes Events that could not be written.",
    registry=REGISTRY,
)


class Phases:
    """Counts objects by phase, for OBJECTS."""

    def __init__(self) -> None:
        self._of: dict[Key, str] = {}

    def set(self, key: Key, phase: str | None) -> None:
        """The object has this phase now; None: it is gone."""
        before = self._of.pop(key, None)
        if before is not None:
            OBJECTS.labels(phase=before).dec()
        if phase is not None:
            self._of[key] = phase
            OBJECTS.labels(phase=phase).inc()


def observe_look(look: Look) -> None:
    """Count one look of the control loop."""
    TUNING_LOOKS.labels(reason=look.reason.value).inc()
    if look.turned:
        effect = "recommended" if look.recommended else "applied"
        TUNING_DECISIONS.labels(knob=look.turned, effect=effect).inc()
    TUNING_SETTINGS.labels(outcome="in_force").inc(look.told)
    TUNING_SETTINGS.labels(outcome="failed").inc(look.refused)


def observe_call(call: Call) -> None:
    """Count one request attempt; the client's `observe` hook."""
    code = f"{call.status // 100}xx" if call.status else "none"
    plural = call.resource.plural
    resource = f"{plural}/{call.subresource}" if call.subresource else plural
    API_REQUESTS.labels(verb=call.verb, resource=resource, code=code).inc()
    API_SECONDS.labels(verb=call.verb).observe(call.seconds)
