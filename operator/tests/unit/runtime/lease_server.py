"""The little of a Lease that leader election needs, with faults: optimistic locking and delays."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Resource

Object = dict[str, Any]


class LeaseServer:
    """One Lease behind a network that a test can cut."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.writers: list[tuple[float, str]] = []
        self._version = 0

    def holder(self) -> str:
        return str((self.lease or {"spec": {}})["spec"].get("holderIdentity", ""))


class LeaseClient:
    """A client of the server; `down` refuses, `delay` holds an answer back, `lose` loses it."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.down = False
        self.delay = 0.0
        self.lose = 0

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        await self._arrive()
        return copy.deepcopy(self.server.lease)

    async def create(self, lease: Object) -> Object:
        await self._arrive()
        if self.server.lease is not None:
            raise _error(errors.ConflictError, 409)
        return await self._store(lease)

    async def replace(self, lease: Object) -> Object:
        await self._arrive()
        current = self.server.lease
        if current is None:  # as the real one answers: Leases may be created by PUT
            raise _error(errors.ConflictError, 409)
        if lease["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            raise _error(errors.ConflictError, 409)
        return await self._store(lease)

    async def _store(self, lease: Object) -> Object:
        server = self.server
        server._version += 1
        metadata = lease["metadata"] | {"resourceVersion": str(server._version)}
        server.lease = copy.deepcopy(lease | {"metadata": metadata})
        server.writers.append((asyncio.get_running_loop().time(), server.holder()))
        if self.lose:
            self.lose -= 1
            raise errors.UnreachableError(call="lease", cause=ConnectionResetError())
        return copy.deepcopy(server.lease)

    async def _arrive(self) -> None:
        if self.down:
            raise errors.UnreachableError(call="lease", cause=ConnectionRefusedError())
        await asyncio.sleep(self.delay)


def _error(kind: type[errors.ApiError], status: int) -> errors.ApiError:
    return kind(status=status, reason="", message="", call="lease")
