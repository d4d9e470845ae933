"""Real Valkey processes in the place of a tier's pods, and a watch over who is let in.

The stand-in kubelet gives each Valkey pod an address of this machine's loopback, where a server
runs for as long as the pod exists, with the files that its kubelet has brought: a test says when
those follow the Secret. Of engine pods it is noted which password they were started with.
"""

from __future__ import annotations

import base64
import random
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

import valkey
from valkey.exceptions import AuthenticationError

from cluster.api import ApiError
from kvserving_operator.kube import paths
from tests.tier_servers import Server

from .harness import Cluster, Kubelet, Object

PORT = 6379
_PACE = 0.02
"""Seconds between two looks."""
ENGINE, OPERATOR = "valkey-engine-password", "valkey-operator-password"


def secret_of(cluster: Cluster, name: str) -> dict[str, str]:
    """The texts of Secret NAME-auth."""
    data = cluster.must_get(paths.SECRETS, f"{name}-auth")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


@dataclass
class Instance:
    """One Valkey pod's process, and the Secret as its kubelet has it."""

    server: Server
    uid: str
    files: dict[str, str]

    def bring(self, files: dict[str, str]) -> None:
        """The kubelet's update of the volume."""
        (self.server.folder / "users.acl").write_text(files["users.acl"])
        self.files = files

    def client(self, user: str, password: str) -> valkey.Valkey:
        return valkey.Valkey(host=self.server.address, port=PORT, username=user, password=password)

    def takes(self, user: str, password: str) -> bool:
        with self.client(user, password) as client:
            try:
                return bool(client.ping())
            except AuthenticationError:
                return False


@dataclass
class Tier:
    """The instances of one KVServing by pod name, and the engines' passwords by pod uid."""

    instances: dict[str, Instance] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    """By the uid of each engine pod that runs."""
    lag: set[str] = field(default_factory=set)
    """Names of pods whose files do not follow."""


class TierKubelet(Kubelet):
    """A kubelet whose Valkey pods are processes."""

    def __init__(self, cluster: Cluster, name: str, folder: Path, *options: str) -> None:
        super().__init__(cluster)
        self.name = name
        self.tier = Tier()
        self.lock = threading.Lock()
        self.died: Exception | None = None
        self._folder = folder
        self._options = options
        # Of this test alone: tests run side by side.
        self._network = f"127.{random.randint(64, 250)}.{random.randint(0, 250)}"  # noqa: S311

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for instance in self.tier.instances.values():
            instance.server.kill()
        assert self.died is None, self.died

    def _run(self) -> None:
        try:
            super()._run()
        except Exception as error:  # noqa: BLE001 told to the test, whose pods stand still now
            self.died = error

    def _report(self, pod: Object) -> None:
        labels = pod["metadata"]["labels"]
        if labels.get("kvserving.io/kvserving") == self.name:
            role = labels["kvserving.io/role"]
            with self.lock:
                if role == "valkey":
                    self._valkey(pod)
                elif role == "prefill" and pod["metadata"]["uid"] not in self.tier.engines:
                    secret = secret_of(self._cluster, self.name)
                    self.tier.engines[pod["metadata"]["uid"]] = secret[ENGINE]
        super()._report(pod)

    def _valkey(self, pod: Object) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        files = secret_of(self._cluster, self.name)
        known = self.tier.instances.get(name)
        if known is None or known.uid != uid:
            if known is not None:
                known.server.kill()
            self.tier.instances[name] = self._started(name, uid, files)
        elif name not in self.tier.lag and known.files != files:
            known.bring(files)
        address = self.tier.instances[name].server.address
        if pod.get("status", {}).get("podIP") != address:
            path = paths.PODS.path(self._cluster.namespace, name, "status")
            status = {"podIP": address, "podIPs": [{"ip": address}]}
            self._cluster.plane.api.merge_patch(path, {"status": status})

    def _started(self, name: str, uid: str, files: dict[str, str]) -> Instance:
        ordinal = int(name.rpartition("-")[2])
        folder = self._folder / uid
        options = ["--aclfile", str(folder / "users.acl"), *self._options]
        server = Server(
            folder, *options, auth=None, address=f"{self._network}.{ordinal + 1}", port=PORT
        )
        made = Instance(server, uid, files)
        made.bring(files)
        server.start()
        return made


class Watch:
    """Looks all the time whether every instance takes the password of every engine that runs."""

    def __init__(self, cluster: Cluster, kubelet: TierKubelet) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        # One connection an instance: a new one for each look would use up the machine's ports.
        self._doors: dict[str, socket.socket] = {}
        self._died: Exception | None = None
        self.looks = 0
        self.refused: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for door in self._doors.values():
            door.close()
        assert self._died is None, self._died

    def _run(self) -> None:
        try:
            while not self._over.wait(_PACE):
                self._look()
        except Exception as error:  # noqa: BLE001 told to the test, which waits for it
            self._died = error

    def _look(self) -> None:
        try:
            pods = self._cluster.list(paths.PODS, self._kubelet.name)
        except ApiError:
            return
        uids = {pod["metadata"]["uid"] for pod in pods}
        with self._kubelet.lock:
            tier = self._kubelet.tier
            for name, instance in tier.instances.items():
                for uid, password in tier.engines.items():
                    if uid in uids and not self._takes(instance, password):
                        self.refused.append(f"{name} refuses engine {uid}")
        self.looks += 1

    def _takes(self, instance: Instance, password: str) -> bool:
        address = instance.server.address
        if address not in self._doors:
            self._doors[address] = socket.create_connection((address, PORT), timeout=10)
        self._doors[address].sendall(f"AUTH engine {password}\r\n".encode())
        return self._doors[address].recv(1024) == b"+OK\r\n"


__all__ = ["ENGINE", "OPERATOR", "TierKubelet", "Watch", "secret_of"]
