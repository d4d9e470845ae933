"""The verbs of the Kubernetes API that the operator uses, on plain dicts.

Reads return what the server holds, writes are server-side apply with one field manager, or name
exactly the object they mean. The client decides nothing about objects.
"""

from kvserving_operator.api import meta
from kvserving_operator.kube import errors
from kvserving_operator.kube.paths import Resource, resource_of
from kvserving_operator.kube.transport import APPLY, MERGE, Request, Transport
from kvserving_operator.plan.model import Manifest


class ApiClient(Transport):
    """Get, list, apply, create, replace, merge and delete on one API server."""

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

    # Writes

    async def apply(
        self, manifest: Manifest, *, force: bool = True, dry_run: bool = False
    ) -> Manifest:
        """Server-side apply of the fields in `manifest`; creates the object when it is absent.

        With `metadata.uid` in the manifest nothing is created and a different object under the
        same name is a ConflictError. Without `force` a field that another manager owns with
        another value is a ConflictError too.
        """
        return await self._apply(manifest, subresource="", force=force, dry_run=dry_run)

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
        return True
