"""What component tests share: an operator process under the declared permissions, and a cluster.

The operator runs as a process of its own, as in production, with a client certificate whose user
holds exactly the rules of `kube.permissions`. There is no kubelet and no scheduler: pods are made
by the real controllers and stay Pending until a test says what a kubelet would (`Kubelet`).
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from cluster.api import ApiError
from cluster.audit import Write
from cluster.controlplane import ControlPlane
from cluster.pki import Identity
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.kube.permissions import Scope, rules

from .apiserver import Server
from .valkeys import Valkeys, is_valkey

REPOSITORY = Path(__file__).resolve().parents[3]
GROUP = "kvserving-operators"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASE = "kvserving-operator"
PATIENCE = 120.0
"""Seconds for what takes a few where nothing else runs. Only a test that fails waits for all of
them, so that a busy machine fails none; what promises a time says so itself."""
WORKLOADS = (paths.STATEFULSETS, paths.DEPLOYMENTS)

Object = dict[str, Any]


def example(name: str, **changes: Any) -> Object:
    """The quickstart of the examples that exercises every child, renamed and changed."""
    path = REPOSITORY / "examples" / "quickstart-pcp.yaml"
    obj: Object = yaml.safe_load(path.read_text())
    obj["metadata"] = {"name": name}
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        target = obj["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return obj


class Cluster:
    """The control plane as tests speak to it, in one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def get(self, resource: Resource, name: str) -> Object | None:
        try:
            return self.plane.api.get(resource.path(self.namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def must_get(self, resource: Resource, name: str) -> Object:
        found = self.get(resource, name)
        assert found is not None, f"{resource} {name} does not exist"
        return found

    def list(self, resource: Resource, name: str = "") -> list[Object]:
        selector = f"?labelSelector=kvserving.io/kvserving={name}" if name else ""
        answer = self.plane.api.get(resource.path(self.namespace) + selector)
        return list(answer["items"])

    def create(self, obj: Object) -> Object:
        resource = _resource(obj)
        return self.plane.api.create(resource.path(self.namespace), obj)

    def patch(self, resource: Resource, name: str, body: Object) -> Object:
        return self.plane.api.merge_patch(resource.path(self.namespace, name), body)

    def delete(self, resource: Resource, name: str) -> None:
        self.plane.api.delete(resource.path(self.namespace, name))

    def children(self, name: str) -> dict[str, Object]:
        """All children by `resource/name`, the Secret included."""
        found = [
            (resource, item) for resource in paths.CHILDREN for item in self.list(resource, name)
        ]
        return {f"{resource.plural}/{i['metadata']['name']}": i for resource, i in found}

    def contents(self, name: str) -> dict[str, Object]:
        """The children without their status, and without the version that counts its changes.

        Kubernetes' controllers report when they come to it, which may be after all pods are ready:
        two looks at an untouched child differ in no more than that.
        """
        found = {}
        for key, child in self.children(name).items():
            reported = {"resourceVersion", "managedFields"}
            metadata = {k: v for k, v in child["metadata"].items() if k not in reported}
            found[key] = {k: v for k, v in child.items() if k != "status"} | {"metadata": metadata}
        return found

    def status(self, name: str) -> Object:
        live = self.get(paths.KVSERVINGS, name) or {}
        status: Object = live.get("status") or {}
        return status

    def condition(self, name: str, type_: str) -> Object:
        found = (c for c in self.status(name).get("conditions", []) if c["type"] == type_)
        return next(found, {})

    def wait_condition(
        self, name: str, type_: str, status: str, reason: str = "", *, timeout: float = PATIENCE
    ) -> Object:
        def there() -> Object | None:
            now = self.condition(name, type_)
            generation = (self.get(paths.KVSERVINGS, name) or {})["metadata"]["generation"]
            good = now.get("status") == status and now.get("observedGeneration") == generation
            return now if good and reason in {"", now["reason"]} else None

        return wait_for(
            there,
            timeout=timeout,
            what=f"{type_}={status} {reason}",
            more=lambda: json.dumps(self.status(name).get("conditions"), indent=1),
        )

    def wait_ready(self, name: str, *, timeout: float = PATIENCE) -> None:
        self.wait_condition(name, "Ready", "True", timeout=timeout)

    def settled(self, name: str) -> None:
        """Ready, and the work is over as one status has it."""

        def there() -> bool:
            live = self.must_get(paths.KVSERVINGS, name)
            told = {
                c["type"]: c["status"]
                for c in live.get("status", {}).get("conditions", [])
                if c["observedGeneration"] == live["metadata"]["generation"]
            }
            return (told.get("Ready"), told.get("Reconciling")) == ("True", "False")

        wait_for(
            there,
            timeout=PATIENCE,
            what="Ready=True and Reconciling=False",
            more=lambda: json.dumps(self.status(name).get("conditions"), indent=1),
        )

    def writes(self, since: int, *, user: str = "") -> list[Write]:
        """Writes of operators in this namespace; Lease renewals and dry runs left out.

        All that was answered before the call is among them.
        """
        self._all_logged()
        return [
            write
            for write in self.plane.audit.writes(since)
            if write.namespace == self.namespace
            and write.user_agent == "kvserving-operator"
            and write.resource != "leases"
            and not write.dry_run
            and user in write.user
        ]

    def mark(self) -> int:
        """A point in the audit log: what was answered before is not among the writes since."""
        self._all_logged()
        return self.plane.audit.mark()

    def _all_logged(self) -> None:
        """Until the log has a request of our own: it is written after the answers."""
        name, since = f"mark-{uuid.uuid4().hex}", self.plane.audit.mark()
        with suppress(ApiError):  # there is no such object
            self.delete(paths.CONFIGMAPS, name)
        self.plane.audit.wait_for(lambda w: w.name == name, since=since, timeout=PATIENCE)


def _resource(obj: Object) -> Resource:
    return paths.resource_of(obj)


def wait_for(
    condition: Callable[[], Any],
    *,
    timeout: float = PATIENCE,
    what: str,
    more: Callable[[], str] = str,
) -> Any:
    """The first true value of `condition`; fails the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {timeout:.0f} s\n{more()}")
        time.sleep(0.05)


def install(plane: ControlPlane) -> None:
    """CRD, and a ClusterRole with exactly the declared permissions for the operators' group."""
    Server(Path(plane.kubeconfig)).install_crd()
    name = {"name": GROUP}
    plane.api.create(
        f"{RBAC}/clusterroles",
        {"metadata": name, "rules": rules(Scope.SERVED) + rules(Scope.OWN)},
    )
    plane.api.create(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": name,
            "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": GROUP},
            "subjects": [{"apiGroup": RBAC.split("/")[2], "kind": "Group", "name": GROUP}],
        },
    )


def user_kubeconfig(cluster: Cluster, name: str) -> Path:
    """Kubeconfig of a user with the operators' permissions, for one test's namespace."""
    user = f"{name}.{cluster.namespace}"
    identity = Identity(user, user, GROUP)
    cluster.plane.pki.add(identity, cluster.plane.url)
    return cluster.plane.pki.kubeconfig(identity)


class OperatorProcess:
    """One operator process, its Lease in the cluster's namespace.

    Without a kubeconfig of its own it is the user `name` of that namespace in the audit log.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        name: str = "operator",
        *,
        server: str = "",
        kubeconfig: Path | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> None:
        """`namespaces`: those served, none of them for all; without it that of the cluster."""
        self.name = name
        self._cluster = cluster
        self._namespaces = [cluster.namespace] if namespaces is None else namespaces
        self._kubeconfig = kubeconfig or self._credentials(folder, server)
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> Self:
        """Start the process; returns at once."""
        command = [sys.executable, "-m", "kvserving_operator.main"]
        command += ["--kubeconfig", str(self._kubeconfig)]
        command += ["--namespaces", ",".join(self._namespaces)]
        command += ["--operator-namespace", self._cluster.namespace]
        command += ["--http-host", "127.0.0.1", "--http-port", "0", "--identity", self.name]
        # Without byte code on disk every start compiles kopf and kubernetes anew: 3 s of CPU.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *arguments], stderr=log, stdout=log, env=environment
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def log(self) -> list[Object]:
        """The records logged so far, by all runs."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line[:1] == "{"]

    @property
    def unexpected(self) -> list[Object]:
        """Records that no healthy run contains."""
        return [r for r in self.log if r["level"] == "error" or "exception" in r]

    def said(self, pattern: str) -> bool:
        return any(re.search(pattern, record["message"]) for record in self.log)

    def wait_leading(self, *, timeout: float = PATIENCE) -> None:
        wait_for(
            lambda: self.said("^leading as"),
            timeout=timeout,
            what=f"{self.name} leads",
            more=self._log.read_text,
        )

    @property
    def port(self) -> int:
        pattern = r"port (\d+)$"
        wait_for(lambda: self.said(pattern), what="the HTTP server", more=self._log.read_text)
        found = [re.search(pattern, record["message"]) for record in self.log]
        return int([match for match in found if match][-1][1])

    def ask(self, path: str) -> tuple[int, str]:
        """GET on the operator's HTTP server."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ready(self) -> bool:
        return self.ask("/readyz")[0] == 200

    def metric(self, series: str) -> float:
        """The value of one series of /metrics; 0 while it does not exist."""
        lines = self.ask("/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(series))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, *, timeout: float = PATIENCE) -> int:
        """The exit status of the process, once it ends."""
        return self.process.wait(timeout)

    def stop(self, *, timeout: float = 30) -> int:
        """SIGTERM, and the exit status: within the time that a kubelet gives."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout=timeout)

    def kill(self) -> None:
        """SIGKILL, also a frozen one."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def crash(self) -> None:
        """SIGKILL; its successor need not wait for the end of the Lease, which test_leader.py does.

        A shorter Lease would end operators that a busy machine keeps from renewing it.
        """
        self.kill()
        with suppress(ApiError):  # it never led
            self._cluster.delete(paths.LEASES, LEASE)

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _credentials(self, folder: Path, server: str) -> Path:
        path = user_kubeconfig(self._cluster, self.name)
        if not server:
            return path
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"] = {"server": server}
        other = folder / f"{self.name}.kubeconfig"
        other.write_text(json.dumps(config))
        return other


@contextmanager
def supervised(operator: OperatorProcess, *arguments: str) -> Iterator[OperatorProcess]:
    """An operator that is started again whenever it ends, as a kubelet would."""
    ending = threading.Event()

    def keep() -> None:
        while not ending.is_set():
            operator.start(*arguments)
            while operator.process.poll() is None and not ending.is_set():
                ending.wait(0.1)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield operator
    finally:
        ending.set()
        keeper.join()
        operator.kill()


class Kubelet:
    """Says of every pod of the namespace what a kubelet would: that it runs and is ready.

    `broken` maps a part of a pod's name to the waiting reason that its first container has instead.
    """

    def __init__(
        self, cluster: Cluster, *, interval: float = 0.1, valkeys: Valkeys | None = None
    ) -> None:
        """``interval``: seconds between its looks at all pods, which cost CPU with many of them.

        ``valkeys``: what makes the pods of tiers real; without it they have no address.
        """
        self._cluster = cluster
        self._valkeys = valkeys
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.broken: dict[str, str] = {}
        self.held: set[str] = set()
        """Parts of names of pods that are left alone."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                for pod in self._cluster.list(paths.PODS):
                    self._report(pod)
            except ApiError:
                continue  # the API server is being restarted, or the pod has just gone

    def status(self, pod: Object, *, waiting: str) -> Object:
        """What a pod's status shall be; `waiting`: as of `pod_status`."""
        return pod_status(pod, waiting=waiting)

    def _report(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if any(part in name for part in self.held):
            return
        reason = next((r for part, r in self.broken.items() if part in name), "")
        wanted = self.status(pod, waiting=reason)
        if self._valkeys is not None and is_valkey(pod):
            wanted["podIP"] = self._valkeys.address_of(pod)
        current = {field: pod.get("status", {}).get(field) for field in wanted}
        if current != wanted:
            path = paths.PODS.path(self._cluster.namespace, name, "status")
            self._cluster.plane.api.merge_patch(path, {"status": wanted})


def pod_status(pod: Object, *, waiting: str = "") -> Object:
    """The status of a pod that runs and is ready, or whose containers wait for `waiting`."""
    state: Object = {"running": {}} if not waiting else {"waiting": {"reason": waiting}}
    ready = not waiting
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": copy.deepcopy(state),
            "lastState": {},
        }
        for container in pod["spec"]["containers"]
    ]
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastProbeTime": None,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "phase": "Running" if ready else "Pending",
        "conditions": [condition],
        "containerStatuses": containers,
    }


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A namespace with everything that makes objects get ready in it."""

    cluster: Cluster
    operator: OperatorProcess
    kubelet: Kubelet
