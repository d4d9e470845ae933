"""Every (group, resource, verb) the operator calls: the source of the chart's RBAC.

The client refuses a call that is not in this list before it leaves the process, so a forgotten
permission fails in the first test that makes the call and not as a 403 in somebody's cluster.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]


class Scope(StrEnum):
    """Where a permission is needed."""

    SERVED = "served"
    """In every namespace the operator serves (cluster-wide: a ClusterRole)."""
    OWN = "own"
    """Only in the operator's own namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Verbs on one resource or subresource, with the reason they are needed."""

    resource: Resource
    subresource: str = ""
    verbs: tuple[Verb, ...]
    scope: Scope = Scope.SERVED
    why: str

    @property
    def group(self) -> str:
        """API group as RBAC rules write it ("" is the core group)."""
        return self.resource.group

    @property
    def rule_resource(self) -> str:
        """Resource as RBAC rules write it, e.g. `kvservings/status`."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


def _child(resource: Resource, why: str) -> Permission:
    # Server-side apply is PATCH and, for an object that does not exist yet, needs create as well.
    return Permission(
        resource=resource, verbs=("get", "list", "watch", "create", "patch", "delete"), why=why
    )


def _optional(resource: Resource, why: str) -> Permission:
    # Not watched, hence no watch. A rule for an API that is not there grants nothing.
    return Permission(
        resource=resource, verbs=("get", "list", "create", "patch", "delete"), why=why
    )


PERMISSIONS: tuple[Permission, ...] = (
    Permission(
        resource=paths.KVSERVINGS,
        verbs=("get", "list", "watch"),
        why="the objects served; spec is never written",
    ),
    Permission(
        resource=paths.KVSERVINGS,
        subresource="status",
        verbs=("patch",),
        why="status is written by server-side apply",
    ),
    Permission(
        resource=paths.KVSERVINGS,
        subresource="finalizers",
        verbs=("update",),
        why="owner references with blockOwnerDeletion (OwnerReferencesPermissionEnforcement)",
    ),
    _child(paths.STATEFULSETS, "engines and the KV tier"),
    _child(paths.DEPLOYMENTS, "router"),
    _child(paths.SERVICES, "names of pods, router front, metrics"),
    _child(paths.CONFIGMAPS, "engine and KV tier configuration"),
    Permission(
        resource=paths.SECRETS,
        verbs=("get", "create", "patch"),
        why="credentials of one KVServing, read by name only; no list, no watch, no delete",
    ),
    _child(paths.SERVICE_ACCOUNTS, "identity of the router"),
    _child(paths.ROLES, "what the router may see"),
    _child(paths.ROLE_BINDINGS, "what the router may see"),
    _child(paths.NETWORK_POLICIES, "who reaches engines and the KV tier"),
    _child(paths.POD_DISRUPTION_BUDGETS, "voluntary disruptions one at a time"),
    _optional(paths.CERTIFICATES, "TLS of the KV tier, where cert-manager is installed"),
    _optional(paths.HTTP_ROUTES, "the way from a Gateway, where the Gateway API is installed"),
    _optional(paths.POD_MONITORS, "scraping, where the Prometheus operator is installed"),
    Permission(
        resource=paths.PODS,
        verbs=("get", "list", "watch", "delete"),
        why="readiness and OnDelete replacement; the router's Role grants get, list, watch on",
    ),
    Permission(
        resource=paths.EVENTS,
        verbs=("get", "create", "patch"),
        why="one Event per object and reason, with a count",
    ),
    Permission(
        resource=paths.LEASES,
        verbs=("get", "create", "update"),
        scope=Scope.OWN,
        why="leader election",
    ),
)

_ALLOWED: dict[tuple[str, str, str], frozenset[str]] = {
    (p.resource.group, p.resource.plural, p.subresource): frozenset(p.verbs) for p in PERMISSIONS
}


def rules(scope: Scope) -> list[dict[str, list[str]]]:
    """The permissions of one scope as rules of an RBAC Role or ClusterRole, one for each entry."""
    return [
        {
            "apiGroups": [permission.group],
            "resources": [permission.rule_resource],
            "verbs": list(permission.verbs),
        }
        for permission in PERMISSIONS
        if permission.scope is scope
    ]


class UndeclaredCallError(RuntimeError):
    """A call that PERMISSIONS does not list: a programming error, never retried."""


def require(verb: Verb, resource: Resource, subresource: str = "") -> None:
    """Raise UndeclaredCallError unless the call is in PERMISSIONS."""
    if verb not in _ALLOWED.get((resource.group, resource.plural, subresource), frozenset()):
        suffix = f"/{subresource}" if subresource else ""
        raise UndeclaredCallError(f"{verb} {resource}{suffix} is not in kube/permissions.py")
