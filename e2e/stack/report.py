"""What there was in the cluster when a test failed: afterwards nobody can ask it any more."""

from __future__ import annotations

from collections.abc import Iterable

from stack.install import SYSTEM_NAMESPACE
from stack.kubectl import Kubectl, KubectlError, Object
from stack.pods import is_ending, is_ready

LINES = 200
"""Of one report."""
EVENTS, LOG = 30, 60
OPERATOR = "app.kubernetes.io/name=kvserving-operator"


def report(kubectl: Kubectl, namespaces: Iterable[str]) -> list[str]:
    """Conditions, pods and events of these namespaces, and what the operator logged last."""
    lines = [line for name in namespaces for line in _namespace(kubectl.within(name))]
    log = _log(kubectl.within(SYSTEM_NAMESPACE))
    kept = lines[: LINES - len(log)]
    left_out = [f"({len(lines) - len(kept)} lines more)"] if len(kept) < len(lines) else []
    return [*kept, *left_out, *log]


def _namespace(kubectl: Kubectl) -> list[str]:
    try:
        objects = kubectl.list("kvservings")
        pods, events = kubectl.list("pods"), kubectl.list("events")
    except KubectlError as error:
        return [f"namespace {kubectl.namespace}: {error}"]
    told = sorted(events, key=_when)[-EVENTS:]
    return [
        f"namespace {kubectl.namespace}: {len(objects)} objects, {len(pods)} pods",
        *(line for obj in objects for line in _object(obj)),
        *map(_pod, pods),
        *map(_event, told),
    ]


def _object(obj: Object) -> list[str]:
    metadata, status = obj["metadata"], obj.get("status") or {}
    head = f"KVServing {metadata['name']}: {status.get('phase', 'no status')}"
    ending = ", being deleted" if "deletionTimestamp" in metadata else ""
    return [
        f"{head}, generation {metadata['generation']}{ending}",
        *(
            f"  {c['type']}={c['status']} {c['reason']} (of generation "
            f"{c.get('observedGeneration')}, since {c['lastTransitionTime']}): {c['message']}"
            for c in status.get("conditions") or ()
        ),
    ]


def _pod(pod: Object) -> str:
    status = pod.get("status") or {}
    words = [status.get("phase", "?"), "ready" if is_ready(pod) else "not ready"]
    words += ["ending"] if is_ending(pod) else []
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in every:
        state = container.get("state") or {}
        now = next(iter(state), "unknown")
        reason = (state.get(now) or {}).get("reason")
        again = f", restarted {n} times" if (n := container["restartCount"]) else ""
        if now != "running" or again:
            words.append(f"{container['name']} {now} {reason or ''}".rstrip() + again)
    return f"pod {pod['metadata']['name']}: {', '.join(words)}"


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _event(event: Object) -> str:
    about = event.get("involvedObject") or {}
    who = f"{about.get('kind')}/{about.get('name')}"
    return f"{_when(event)} {who} {event.get('reason')}: {event.get('message')}"


def _log(system: Kubectl) -> list[str]:
    arguments = ("-l", OPERATOR, f"--tail={LOG}", "--prefix", "--timestamps")
    try:
        return ["operator:", *system.run("logs", *arguments, timeout=20).splitlines()[-LOG:]]
    except KubectlError as error:
        return [f"operator: no log: {error}"]
