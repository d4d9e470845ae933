"""A client that records writes and answers from what it was given; it emulates no API server."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Resource

Object = dict[str, Any]


class RecordingClient:
    """Returns what was applied as if it had been stored; `refuse` maps labels to errors."""

    def __init__(self, *named: Object) -> None:
        self.named = {(o["kind"], o["metadata"]["name"]): o for o in named}
        self.refuse: dict[str, errors.RequestError] = {}
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.dry_runs: list[str] = []
        self.forced: dict[str, bool] = {}
        self.bodies: dict[str, Object] = {}
        self.stored_differently: Object = {}
        self.rounds = 0
        """Times that it was asked to write while it was writing nothing."""
        self._busy = 0
        self._version = 100

    async def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        self.reads.append(f"{resource.kind} {name}")
        return self.named.get((resource.kind, name))

    async def apply(self, obj: Object, *, force: bool = True, dry_run: bool = False) -> Object:
        self.rounds += self._busy == 0
        self._busy += 1
        await asyncio.sleep(0)
        self._busy -= 1
        label = f"{obj['kind']} {obj['metadata']['name']}"
        (self.dry_runs if dry_run else self.writes).append(label)
        self.forced[label] = force
        self.bodies[label] = obj
        if label in self.refuse:
            raise self.refuse[label]
        self._version += 1
        stored = copy.deepcopy(obj)
        stored["metadata"] |= {"uid": f"uid-{label}", "resourceVersion": str(self._version)}
        if "template" in obj.get("spec", {}):
            stored["metadata"]["generation"] = 1
        return stored | self.stored_differently

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str, orphan: bool = False
    ) -> bool:
        label = f"{resource.kind} {name}"
        self.writes.append(f"{'orphan' if orphan else 'delete'} {label} {uid}")
        if label in self.refuse:
            raise self.refuse[label]
        return True
