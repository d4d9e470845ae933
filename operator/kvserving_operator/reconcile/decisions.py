"""Which decision of the tuner a pass renders: what pods were started with, or a later one. Pure.

A decision is carried out by the pass after the one that made it: it is in the status by then, and
this finds it there, later than the one in the pod template. From then on the template has it, and
the status is not needed for it any more: one that is lost, or an older one that comes back, changes
nothing. Off and Recommend take nothing new from the status.

It travels inside of the spec that a pass works with, under a key that no stored spec has: so the
record of what was accepted has it too, and a spec that is refused keeps it up with all the rest.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.kube import paths
from kvserving_operator.observe.gather import Observed
from kvserving_operator.plan.decided import Decided, of_data, of_text
from kvserving_operator.plan.model import Manifest
from kvserving_operator.plan.naming import child_names
from kvserving_operator.tuner import Knob, Mode, from_text

KEY: Final = "decided"
"""In the spec as a pass has it; a stored spec has no such field, the API server takes it out."""
_CLOCKS: Final = 300.0
"""Seconds by which another operator's clock may have been ahead."""


def with_decision(live: Manifest, observed: Observed, now: float) -> Manifest:
    """The object with the decision that is to be rendered, if there is any."""
    spec = live["spec"]
    applies = (spec.get("tuning") or {}).get("mode") == Mode.APPLY.value
    workloads = list(_workloads(observed))
    started = max(filter(None, map(_started, workloads)), key=lambda d: d.at, default=None)
    later = _stored(live.get("status"), now) if applies or not workloads else None
    if started is None or (later is not None and later.at > _time(started, now)):
        started = later
    bare = {name: value for name, value in spec.items() if name != KEY}
    if started is None:
        return live if KEY not in spec else {**live, "spec": bare}
    return {**live, "spec": {**bare, KEY: started.data}}


def _time(started: Decided, now: float) -> float:
    """Its time; what a clock that was set back since had called a later one is older than all."""
    return started.at if started.at <= now + _CLOCKS else float("-inf")


def decision_of(spec: Mapping[str, Any]) -> Decided | None:
    """The decision that goes along with a spec."""
    return of_data(spec.get(KEY))


def _workloads(observed: Observed) -> Iterator[Manifest]:
    names = child_names(observed.key.name)
    for name in (names.prefill, names.decode):
        found = observed.child(paths.STATEFULSETS, name)
        if found is not None:
            yield found


def _started(workload: Manifest) -> Decided | None:
    metadata = workload["spec"]["template"].get("metadata") or {}
    return of_text((metadata.get("annotations") or {}).get(meta.ANNOTATION_TUNED))


def _stored(status: object, now: float) -> Decided | None:
    """The latest decision in the status; none from a future that no clock explains."""
    tuning = status.get("tuning") if isinstance(status, Mapping) else None
    text = tuning.get("state") if isinstance(tuning, Mapping) else None
    decided = from_text(text if isinstance(text, str) else None).decided.get(Knob.MIN_TOKENS)
    if decided is None or decided[1] > now + _CLOCKS:
        return None
    return of_data({"min_tokens": int(decided[0]), "at": int(decided[1])})
