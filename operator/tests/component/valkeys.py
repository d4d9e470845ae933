"""Real Valkeys for the pods of tiers that no kubelet runs, each on a loopback address of its own.

They have the users of the Secret that the operator has written, and the port that it looks at.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
from pathlib import Path
from typing import Any, Self

from cluster.controlplane import ControlPlane
from kvserving_operator.api import meta
from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.plan.naming import child_names
from kvserving_operator.render.secret import ACL_KEY
from tests.tier_servers import Server

_NUMBERS = itertools.count(2)


def _next_address() -> str:
    # Other test processes of this machine have others.
    process, number = os.getpid(), next(_NUMBERS)
    return f"127.{32 + process % 200}.{process // 200 % 250}.{number % 250}"


def is_valkey(pod: dict[str, Any]) -> bool:
    """Whether it is an instance of a tier."""
    return bool(pod["metadata"]["labels"].get(meta.LABEL_ROLE) == Role.VALKEY.value)


class Valkeys:
    """A server for each pod that asks for an address, until the end."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane, self._folder = plane, folder
        self._of: dict[str, Server] = {}

    def of(self, pod: dict[str, Any]) -> Server:
        """The server that is this pod's container, started when it is first asked for."""
        uid = pod["metadata"]["uid"]
        if uid not in self._of:
            self._of[uid] = self._started(pod, self._folder / uid)
        return self._of[uid]

    def address_of(self, pod: dict[str, Any]) -> str:
        return self.of(pod).address

    def _started(self, pod: dict[str, Any], folder: Path) -> Server:
        metadata = pod["metadata"]
        name = child_names(metadata["labels"][meta.LABEL_KVSERVING]).auth
        secret = self._plane.api.get(paths.SECRETS.path(metadata["namespace"], name))
        folder.mkdir(parents=True)
        acl = base64.b64decode(secret["data"][ACL_KEY])
        (folder / "users.acl").write_bytes(acl)
        address = (pod.get("status") or {}).get("podIP") or _next_address()
        options = ("--aclfile", str(folder / "users.acl"))
        server = Server(folder, *options, auth=None, address=address, port=ports.VALKEY.number)
        return server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for server in self._of.values():
            server.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
