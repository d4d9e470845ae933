"""A real etcd, API server and controllers in seconds: for component tests, and under the node.

As a context manager it uses free ports and a temporary folder, dies with the process that made it,
and any number may run at once:

    with ControlPlane() as plane:
        subprocess.run([plane.program("kubectl"), "--kubeconfig", plane.kubeconfig, "get", "ns"])
        plane.audit.count(by=("user_agent", "verb", "resource"))
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import audit, binaries, components, pki, ports, settings
from cluster.api import ApiClient
from cluster.components import Layout
from cluster.errors import ClusterError
from cluster.health import answers
from cluster.processes import ProcessTable, write_atomically
from cluster.settings import Ports
from cluster.waiting import wait_until

START_TIMEOUT = 120.0
#: Seconds for whoever has taken a port of a control plane that is down for a moment.
PORT_WAIT = 20.0
#: The API server drains watches for a minute after SIGTERM; nothing here is worth that wait.
STOP_GRACE = 2.0
CLIENTS = (pki.ADMIN, pki.CONTROLLER_MANAGER, pki.SCHEDULER)


def read_ports(state: Path) -> Ports | None:
    """The ports of the control plane of a state folder."""
    try:
        return Ports(**json.loads((state / "ports.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


class ControlPlane:
    """etcd, API server and controller manager (scheduler, if asked) of one state folder.

    `start` also repairs: what runs is left alone, what died is started again with its data.
    `controllers` is the controller manager's own flag, `*` for all, `""` for no controller manager;
    `controller_flags` are further ones of it. Of the `watched` users the audit log has reads too.
    """

    def __init__(
        self,
        state: Path | None = None,
        *,
        fixed_ports: Ports | None = None,
        controllers: str = "*",
        controller_flags: Sequence[str] = (),
        watched: Sequence[str] = (),
        scheduler: bool = False,
        node_ip: str = "",
        detached: bool = False,
    ) -> None:
        self._temporary = state is None
        made = state or Path(tempfile.mkdtemp(prefix="kvserving-control-plane-"))
        self.state = made.absolute()
        self.table = ProcessTable(self.state, die_with_parent=not detached)
        self._fixed = fixed_ports
        self._ports = fixed_ports or read_ports(self.state) or ports.free_ports()
        self._served = False
        self._controllers, self._scheduler, self._node_ip = controllers, scheduler, node_ip
        self._controller_flags, self._watched = controller_flags, watched
        self._programs: dict[str, Path] = {}
        self._api: ApiClient | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.pki.kubeconfig(pki.ADMIN)

    @property
    def url(self) -> str:
        """URL of the API server."""
        return self.layout.server

    @property
    def audit(self) -> audit.AuditLog:
        """Who wrote what."""
        return audit.AuditLog(self.layout.audit_log)

    @property
    def api(self) -> ApiClient:
        """A small client as administrator."""
        if self._api is None:
            self._api = ApiClient(self.kubeconfig)
        return self._api

    @property
    def pki(self) -> pki.Pki:
        """Key material: certificates for further users."""
        return self.layout.pki

    def program(self, name: str) -> Path:
        """A program of the same build: `kubectl`, …"""
        if name not in self._programs:
            self._programs |= binaries.ensure(binaries.CONTROL_PLANE, quiet=True)
        return self._programs[name]

    def start(self) -> list[str]:
        """Start what does not run and wait until it is ready; return the names of the started."""
        for attempt in range(3):
            try:
                started = self._start()
            except ClusterError as error:
                # A free port may be taken between the choice and the bind.
                if self._fixed or "address already in use" not in str(error) or attempt == 2:
                    raise
                self.stop()
                self._move()
            else:
                self._served = True
                return started
        raise AssertionError("unreachable")

    def _move(self) -> None:
        """Take other ports, unless somebody may know the present ones.

        With the address every certificate and kubeconfig is made anew, those of users included.
        """
        if not self._served:
            self._ports = ports.free_ports()
            return
        deadline = time.monotonic() + PORT_WAIT
        while not all(map(ports.is_free, astuple(self._ports))) and time.monotonic() < deadline:
            time.sleep(0.1)

    def stop(self) -> None:
        """End all processes; data stays."""
        above = [components.SCHEDULER, components.CONTROLLER_MANAGER]
        names = [*above, components.APISERVER, components.ETCD]
        # Data of a temporary one is thrown away: nobody needs a farewell.
        self.table.stop(names, grace=0 if self._temporary else STOP_GRACE)

    def close(self) -> None:
        """End all processes, and delete the folder if it is a temporary one."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.state, ignore_errors=True)

    def stop_apiserver(self, *, grace: float = STOP_GRACE) -> None:
        """End the API server politely, by force after `grace` seconds."""
        self.table.stop([components.APISERVER], grace=grace)

    def kill_apiserver(self) -> None:
        """End the API server by SIGKILL: open connections break."""
        self.stop_apiserver(grace=0)

    def start_apiserver(self) -> None:
        """Start the API server, if it does not run, and wait until it is ready.

        Controllers that gave up meanwhile (they do while they start) come back too.
        """
        self.start()

    def restart_apiserver(self, *, grace: float = STOP_GRACE) -> None:
        """Stop and start the API server on the same port with the same data."""
        self.stop_apiserver(grace=grace)
        self.start_apiserver()

    def freeze_apiserver(self) -> None:
        """Suspend the API server: connections stay open, but nothing answers."""
        self._signal_apiserver(signal.SIGSTOP)

    def thaw_apiserver(self) -> None:
        """Let a frozen API server go on."""
        self._signal_apiserver(signal.SIGCONT)

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.create("/api/v1/namespaces", body)

    def _signal_apiserver(self, number: signal.Signals) -> None:
        process = self.table.running(components.APISERVER)
        if process is None:
            raise ClusterError("the API server does not run")
        process.kill(number)

    @property
    def layout(self) -> Layout:
        """Paths, ports and addresses."""
        if not self._programs:
            self.program("etcd")
        reachable = self._fixed is not None
        return Layout(self.state, self._programs, self._ports, self._node_ip, reachable)

    def _start(self) -> list[str]:
        layout = self.layout
        write_atomically(self.state / "ports.json", json.dumps(vars(self._ports)))
        self._write_identity(layout)
        policy = self.state / "config" / "audit-policy.json"
        write_atomically(policy, json.dumps(audit.policy(self._watched)))
        started = self._start_one(components.ETCD, components.etcd(layout))
        started += self._start_one(components.APISERVER, components.apiserver(layout))
        self._wait_ready()
        if self._controllers:
            argv = components.controller_manager(layout, controllers=self._controllers)
            started += self._start_one(
                components.CONTROLLER_MANAGER, [*argv, *self._controller_flags]
            )
        if self._scheduler:
            started += self._start_one(components.SCHEDULER, components.scheduler(layout))
        self._wait_controllers()
        return started

    def _write_identity(self, layout: Layout) -> None:
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = ["127.0.0.1", settings.API_SERVICE_IP]
        addresses += [self._node_ip] if self._node_ip else []
        layout.pki.create(server=layout.server, names=names, addresses=addresses)
        for identity in CLIENTS:
            layout.pki.add(identity, layout.server)
        if layout.reachable:
            layout.pki.add(pki.KUBELET_CLIENT, layout.server)

    def _start_one(self, name: str, argv: list[str]) -> list[str]:
        return [name] if self.table.ensure(name, argv) else []

    def _wait_ready(self) -> None:
        self._api = None  # the key material may be new
        self._wait("the API server", [components.ETCD, components.APISERVER], self.api.ready)

    def _wait_controllers(self) -> None:
        if not self._controllers:
            return
        port = self._ports.controller_manager
        self._wait(
            "the controller manager",
            [components.APISERVER, components.CONTROLLER_MANAGER],
            lambda: answers("127.0.0.1", port, "/healthz", tls=True),
        )

    def _wait(self, what: str, names: list[str], ready: Callable[[], bool]) -> None:
        def condition() -> bool:
            for name in names:
                process = self.table.get(name)
                if process is not None:
                    self.table.require_alive(process)
            return ready()

        wait_until(condition, timeout=START_TIMEOUT, what=what)
