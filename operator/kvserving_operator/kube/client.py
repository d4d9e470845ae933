"""The verbs of the Kubernetes API that the operator uses, on plain dicts.

Reads return what the server holds, writes are server-side apply with one field manager, or name
exactly the object they mean. The client decides nothing about objects; it tells a `WriteLog` what
it has written, for whoever keeps copies.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kvserving_operator.api import meta
from kvserving_operator.kube import errors
from kvserving_operator.kube.connection import decode
from kvserving_operator.kube.paths import Resource, resource_of
from kvserving_operator.kube.transport import APPLY, MERGE, Request, Transport
from kvserving_operator.plan.model import Manifest

_PAGE = 500
_SILENCE = 75.0
"""Seconds without a line after which a watch counts as dead: bookmarks come once a minute."""


class WriteLog(Protocol):
    """Learns of the writes of children and pods: for whoever keeps copies of them."""

    def applying(self, manifest: Manifest) -> None:
        """The object is about to be stored; `applied` or `failed` follows."""

    def applied(self, stored: Manifest) -> None:
        """The object is stored like this."""

    def failed(self, manifest: Manifest) -> None:
        """The object is not stored, or it is not known whether it is."""

    def deleting(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """The object with this uid is about to be deleted."""

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """It is deleted, or it is not known whether it is."""


class NoLog:
    """The log of a client whose user keeps no copies."""

    def applying(self, manifest: Manifest) -> None:
        """Forget it."""

    def applied(self, stored: Manifest) -> None:
        """Forget it."""

    def failed(self, manifest: Manifest) -> None:
        """Forget it."""

    def deleting(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Forget it."""

    def deleted(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Forget it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A collection at one moment."""

    items: list[Manifest]
    version: str
    """The resourceVersion of the whole; a watch from here misses nothing."""


class ApiClient(Transport):
    """Get, list, watch, apply, create, replace, merge and delete on one API server."""

    _writes: WriteLog = NoLog()

    def tell(self, writes: WriteLog) -> None:
        """Tell this log of every write from now on."""
        self._writes = writes

    # Reads

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object as it is now, or None when it does not exist."""
        try:
            return await self.send(
                Request(method="GET", verb="get", resource=resource, namespace=namespace, name=name)
            )
        except errors.NotFoundError:
            return None

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selector: str = "",
        fresh: bool = False,
    ) -> list[Manifest]:
        """Objects matching a label selector.

        Without `fresh` the server's watch cache answers (`resourceVersion=0`): cheap, and possibly
        a moment old. With `fresh` the answer includes every write that finished before the call.
        """
        query = {} if fresh else {"resourceVersion": "0"}
        if selector:
            query["labelSelector"] = selector
        answer = await self.send(
            Request(method="GET", verb="list", resource=resource, namespace=namespace, query=query)
        )
        types = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [types | item for item in answer.get("items") or []]

    async def snapshot(
        self, resource: Resource, namespace: str | None, *, selector: str
    ) -> Snapshot:
        """What matches, with every write that finished before the call; read in pages."""
        types = {"apiVersion": resource.api_version, "kind": resource.kind}
        query = {"labelSelector": selector, "limit": str(_PAGE)}
        items: list[Manifest] = []
        while True:
            answer = await self.send(
                Request(
                    method="GET", verb="list", resource=resource, namespace=namespace, query=query
                )
            )
            items += [types | item for item in answer.get("items") or []]
            page = answer.get("metadata") or {}
            if not page.get("continue"):
                return Snapshot(items=items, version=str(page.get("resourceVersion", "")))
            query = query | {"continue": page["continue"]}

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        selector: str,
        since: str,
        seconds: float,
    ) -> AsyncIterator[AsyncGenerator[Manifest]]:
        """Open a watch: events from ``since`` on, as JSON objects, until the server ends it."""
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }
        request = Request(
            method="GET", verb="watch", resource=resource, namespace=namespace, query=query
        )
        async with self.stream(request, silence=_SILENCE) as lines:
            yield _events(request, lines)

    # Writes

    async def apply(
        self, manifest: Manifest, *, force: bool = True, dry_run: bool = False
    ) -> Manifest:
        """Server-side apply of the fields in `manifest`; creates the object when it is absent.

        With `metadata.uid` in the manifest nothing is created and a different object under the
        same name is a ConflictError. Without `force` a field that another manager owns with
        another value is a ConflictError too.
        """
        if dry_run:
            return await self._apply(manifest, subresource="", force=force, dry_run=True)
        self._writes.applying(manifest)
        try:
            stored = await self._apply(manifest, subresource="", force=force)
        except BaseException:
            self._writes.failed(manifest)
            raise
        self._writes.applied(stored)
        return stored

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of `status`; fields that we set before and left out now are removed."""
        return await self._apply(manifest, subresource="status", force=True)

    async def _apply(
        self, manifest: Manifest, *, subresource: str, force: bool, dry_run: bool = False
    ) -> Manifest:
        query = {"fieldManager": meta.FIELD_MANAGER}
        if force:
            query["force"] = "true"
        if dry_run:
            query["dryRun"] = "All"
        return await self.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource_of(manifest),
                namespace=manifest["metadata"]["namespace"],
                name=manifest["metadata"]["name"],
                subresource=subresource,
                query=query,
                body=manifest,
                content_type=APPLY,
            )
        )

    async def create(self, manifest: Manifest) -> Manifest:
        """POST of a new object; ConflictError when the name is taken."""
        return await self.send(
            Request(
                method="POST",
                verb="create",
                resource=resource_of(manifest),
                namespace=manifest["metadata"]["namespace"],
                query={"fieldManager": meta.FIELD_MANAGER},
                body=manifest,
            )
        )

    async def replace(self, manifest: Manifest) -> Manifest:
        """PUT of a whole object; ConflictError unless its resourceVersion is the current one."""
        return await self.send(
            Request(
                method="PUT",
                verb="update",
                resource=resource_of(manifest),
                namespace=manifest["metadata"]["namespace"],
                name=manifest["metadata"]["name"],
                query={"fieldManager": meta.FIELD_MANAGER},
                body=manifest,
            )
        )

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Manifest
    ) -> Manifest:
        """JSON merge patch; NotFoundError when the object does not exist."""
        return await self.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=name,
                query={"fieldManager": meta.FIELD_MANAGER},
                body=patch,
                content_type=MERGE,
            )
        )

    async def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str, orphan: bool = False
    ) -> bool:
        """Delete exactly the object with this uid; False when it is gone or was replaced.

        ``orphan`` leaves its dependents (a StatefulSet's pods) alive and without an owner.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        self._writes.deleting(resource, namespace, name, uid)
        try:
            await self.send(
                Request(
                    method="DELETE",
                    verb="delete",
                    resource=resource,
                    namespace=namespace,
                    name=name,
                    body=options,
                )
            )
        except (errors.NotFoundError, errors.ConflictError):
            return False
        finally:
            self._writes.deleted(resource, namespace, name, uid)
        return True


async def _events(request: Request, lines: AsyncIterator[bytes]) -> AsyncGenerator[Manifest]:
    async for line in lines:
        event = decode(line)
        told = event.get("object") if isinstance(event, dict) else None
        if not isinstance(told, dict) or not isinstance(event.get("type"), str):
            cause = ValueError("a line of the watch is no event")
            raise errors.UnreachableError(call=str(request), cause=cause)
        if event["type"] == "ERROR":
            code = int(told.get("code") or 500)
            raise errors.from_response(status=code, body=told, call=str(request))
        yield event
