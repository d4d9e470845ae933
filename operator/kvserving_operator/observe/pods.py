"""What one pod says: ready, terminating, its revision, and what is wrong with it. Pure.

Messages hold names and reasons only, no counts and no times: a pod that crashes for hours must not
cause a status write at each restart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvserving_operator.api.conditions import Reason
from kvserving_operator.observe.labels import labels_of
from kvserving_operator.plan.model import Manifest

REVISION_LABEL = "controller-revision-hash"
"""Set by the StatefulSet controller on each pod: the revision that the pod was made from."""

FINISHED = frozenset({"Failed", "Succeeded"})
"""Phases of pods that run no more."""
_PULL_FAILURES = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_CREATE_FAILURES = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_START_FAILURES = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that ended before its first instruction: its exit code tells nothing."""
_CRASHES = 3
"""Restarts after which a container that is not ready counts as crashing between its crashes too,
so that the reason does not change with every restart."""
_DETAIL_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps a pod from getting ready and that waiting alone may not cure."""

    reason: Reason
    pod: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod, as far as the operator reads it."""

    name: str
    uid: str
    revision: str
    ready: bool
    """In service: the Ready condition is True and the pod is not being deleted."""
    terminating: bool
    finished: bool
    """It runs no more and never will: evicted, refused or shut down by its node."""
    problem: Problem | None
    claims: frozenset[str] = frozenset()
    """Volumes that are PersistentVolumeClaims, by their names in the pod."""


def read_pod(pod: Manifest) -> PodFacts:
    """The facts of a pod."""
    metadata = pod["metadata"]
    status = pod.get("status") or {}
    terminating = "deletionTimestamp" in metadata
    ready = _condition(status, "Ready").get("status") == "True" and not terminating
    return PodFacts(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        revision=str(labels_of(pod).get(REVISION_LABEL, "")),
        ready=ready,
        terminating=terminating,
        finished=status.get("phase") in FINISHED,
        claims=_claims(pod),
        problem=None if ready or terminating else next(_problems(metadata["name"], status), None),
    )


def _claims(pod: Manifest) -> frozenset[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return frozenset(v["name"] for v in volumes if v.get("persistentVolumeClaim"))


def _problems(name: str, status: Mapping[str, Any]) -> Iterator[Problem]:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        detail = _first_sentence(scheduled.get("message", ""))
        yield Problem(
            reason=Reason.UNSCHEDULABLE,
            pod=name,
            message=f"pod {name} cannot be scheduled: "
            f"{detail[:_DETAIL_LIMIT] or scheduled.get('reason')}",
        )
    for container in _containers(status):
        problem = _container_problem(name, container)
        if problem is not None:
            yield problem


def _container_problem(pod: str, container: Mapping[str, Any]) -> Problem | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    reason = waiting.get("reason", "")
    where = f"pod {pod}: container {container.get('name')}"
    if reason in _PULL_FAILURES:
        image = container.get("image", "")
        return Problem(
            reason=Reason.IMAGE_PULL_FAILED, pod=pod, message=f"{where} cannot pull {image}"
        )
    if reason in _CREATE_FAILURES:
        return _not_started(pod, where, waiting)
    return _crash(pod, where, container, crash_loop=reason == "CrashLoopBackOff")


def _crash(
    pod: str, where: str, container: Mapping[str, Any], *, crash_loop: bool
) -> Problem | None:
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if container.get("ready") or not ended:
        return None
    if ended.get("reason") == "OOMKilled":
        return Problem(
            reason=Reason.OUT_OF_MEMORY,
            pod=pod,
            message=f"{where} was killed: it used more memory than its limit",
        )
    if ended.get("reason") in _START_FAILURES and "running" not in state:
        return _not_started(pod, where, ended)
    repeated = crash_loop or int(container.get("restartCount") or 0) >= _CRASHES
    if not repeated or ended.get("exitCode") == 0:
        return None
    return Problem(
        reason=Reason.CRASHING,
        pod=pod,
        message=f"{where} keeps ending with exit code {ended.get('exitCode')}",
    )


def _not_started(pod: str, where: str, told: Mapping[str, Any]) -> Problem:
    detail = _cause(told.get("message", "")) or told.get("reason")
    return Problem(reason=Reason.CRASHING, pod=pod, message=f"{where} cannot be started: {detail}")


def _containers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            found: Mapping[str, Any] = condition
            return found
    return {}


def _cause(text: str) -> str:
    """The end of a chain of errors; what leads to it has ids and paths that change every time."""
    return _first_sentence(text).removesuffix(": unknown").rpartition(": ")[2][:_DETAIL_LIMIT]


def _first_sentence(text: str) -> str:
    # The scheduler appends counts of preemption candidates that change with every attempt.
    return text.split(". ", 1)[0].strip().rstrip(".")
