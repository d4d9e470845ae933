"""Pods: whether one is ready, replacing one, and saying which ones do not go."""

from __future__ import annotations

from collections.abc import Callable

from stack.kubectl import Kubectl, KubectlError, NotInTimeError, Object, wait_for
from stack.progress import Changes

REPLACE_TIMEOUT = 420.0
"""Seconds: an engine may take the 200 of a prefill's grace period to end, and starts anew then."""
DELETE_TIMEOUT = 120.0
LOGS_AFTER = 60.0
"""Seconds that a pod may take to end before its last log lines are shown."""
LOG_LINES = 15


def is_ready(pod: Object) -> bool:
    """Whether a pod's Ready condition is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def in_service_since(kubectl: Kubectl, name: str) -> dict[str, str]:
    """Since when a pod and its containers are ready; AssertionError if one is not.

    Equal before and after something means that the pod never left service: each change is dated.
    """
    conditions = ((kubectl.get("pod", name) or {}).get("status") or {}).get("conditions") or []
    wanted = {c["type"]: c for c in conditions if c["type"] in {"Ready", "ContainersReady"}}
    assert len(wanted) == 2, f"{name} is not there"
    assert all(c["status"] == "True" for c in wanted.values()), f"{name}: {list(wanted.values())}"
    return {kind: c["lastTransitionTime"] for kind, c in wanted.items()}


def lives(kubectl: Kubectl, selector: str) -> dict[str, tuple[str, int]]:
    """Of each pod by name: its uid, and how often its containers were restarted.

    Equal before and after something means that it ended no process of them.
    """
    found = kubectl.list("pods", selector)
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], _restarts(pod)) for pod in found}


def _restarts(pod: Object) -> int:
    status = pod.get("status") or {}
    every = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return sum(container["restartCount"] for container in every)


def replace(
    kubectl: Kubectl,
    name: str,
    *,
    timeout: float = REPLACE_TIMEOUT,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Delete a pod that is there and wait until its successor of the same name is ready."""
    await_successor(kubectl, remove(kubectl, name), timeout=timeout, progress=progress)


def remove(kubectl: Kubectl, name: str) -> Object:
    """Delete a pod that is there, without waiting; what it was."""
    old = kubectl.get("pod", name)
    if old is None:
        raise KubectlError(f"pod {name} is not there, so it cannot be replaced")
    kubectl.delete("pod", name, wait=False)
    return old


def await_successor(
    kubectl: Kubectl,
    old: Object,
    *,
    timeout: float = REPLACE_TIMEOUT,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Wait until another pod of the name of one that was removed is ready."""
    name = old["metadata"]["name"]

    def successor() -> bool:
        new = kubectl.get("pod", name)
        return (
            new is not None and new["metadata"]["uid"] != old["metadata"]["uid"] and is_ready(new)
        )

    wait_for(f"a new {name} that is ready", successor, timeout=timeout, progress=progress)


def delete_namespace(
    kubectl: Kubectl,
    say: Callable[[str], None],
    *,
    timeout: float = DELETE_TIMEOUT,
    only_pods: bool = False,
) -> None:
    """Delete kubectl's namespace, telling what is still in it; absent is fine.

    With `only_pods` it is left to itself once it has no pods: the cluster is thrown away anyway.
    Raises NotInTimeError, which names the pods that are left and what the API server says.
    """
    name = kubectl.namespace
    kubectl.run("delete", "namespace", name, "--ignore-not-found", "--wait=false")

    def gone() -> bool:
        if only_pods and not kubectl.list("pods"):
            return True
        return kubectl.get("namespace", name) is None

    try:
        wait_for(f"namespace {name} is gone", gone, timeout=timeout, progress=Leaving(kubectl, say))
    except NotInTimeError as error:
        raise NotInTimeError(
            f"namespace {name} is still there after {timeout:.0f} s: {_what_holds(kubectl)}"
        ) from error


class Leaving:
    """Progress of a namespace that is being deleted: the pods in it, and the logs of slow ones.

    What a pod logged last is shown once, when it has been ending for a minute: afterwards nobody
    can ask it any more.
    """

    def __init__(
        self, kubectl: Kubectl, say: Callable[[str], None], *, logs_after: float = LOGS_AFTER
    ) -> None:
        self._kubectl, self._say, self._logs_after = kubectl, say, logs_after
        self._lines = Changes(self._look, say)
        self._pods: list[Object] = []
        self._shown: set[str] = set()

    def __call__(self, elapsed: float) -> None:
        self._lines(elapsed)
        if elapsed >= self._logs_after:
            self._show_logs([p["metadata"]["name"] for p in self._pods if is_ending(p)])

    def _look(self) -> str:
        self._pods = self._kubectl.list("pods")
        finishing = "; Kubernetes is finishing the namespace, up to a minute"
        return describe(self._pods) + ("" if self._pods else finishing)

    def _show_logs(self, names: list[str]) -> None:
        for name in (name for name in names if name not in self._shown):
            self._shown.add(name)
            self._say(f"{name} still runs; its last log lines:")
            for line in last_log_lines(self._kubectl, name):
                self._say(f"  {line}")


def is_ending(pod: Object) -> bool:
    """Whether a pod has been told to end."""
    return "deletionTimestamp" in pod["metadata"]


def describe(pods: list[Object]) -> str:
    """One line about pods that should go: how many, which, and what of each still runs."""
    if not pods:
        return "no pods left"
    count = "1 pod" if len(pods) == 1 else f"{len(pods)} pods"
    return f"{count} left: " + ", ".join(_one(pod) for pod in pods)


def _one(pod: Object) -> str:
    status = pod.get("status") or {}
    every = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    running = [c["name"] for c in every if "running" in (c.get("state") or {})]
    what = f"{' '.join(running)} still running" if running else "nothing of it runs"
    asked = "" if is_ending(pod) else ", deletion not requested yet"
    return f"{pod['metadata']['name']} ({what}{asked})"


def last_log_lines(kubectl: Kubectl, pod: str) -> list[str]:
    """The last lines of each container of a pod, or why there are none."""
    try:
        args = ["--all-containers", "--prefix", f"--tail={LOG_LINES}"]
        return kubectl.run("logs", pod, *args, timeout=20).splitlines() or ["(nothing was logged)"]
    except KubectlError as error:
        return [f"(no log: {error})"]


def _what_holds(kubectl: Kubectl) -> str:
    try:
        pods = kubectl.list("pods")
        namespace = kubectl.get("namespace", kubectl.namespace) or {}
    except KubectlError as error:
        return str(error)
    conditions = (namespace.get("status") or {}).get("conditions") or []
    said = [c["message"] for c in conditions if c["status"] == "True"]
    return "; ".join([describe(pods), *said])
