"""Static table of the API resources the operator touches, and their URL paths.

Replaces discovery: the operator owns a closed set of kinds, so a table is faster, needs no cache
file and fails in a unit test instead of at run time. `permissions.py` beside it says which verbs
are used on each entry; the chart's RBAC is generated from that list.
"""

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from kvserving_operator.api import meta
from kvserving_operator.plan.model import Manifest


class Key(NamedTuple):
    """Namespace and name of one KVServing: what the work queue holds."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One namespaced resource of the Kubernetes API."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` field of objects of this resource."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None, subresource: str = "") -> str:
        """URL path of the collection, of one object, or of one object's subresource.

        `namespace=None` addresses the collection over all namespaces.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


KVSERVINGS = Resource(group=meta.GROUP, version=meta.VERSION, kind=meta.KIND, plural=meta.PLURAL)
STATEFULSETS = Resource(group="apps", version="v1", kind="StatefulSet", plural="statefulsets")
DEPLOYMENTS = Resource(group="apps", version="v1", kind="Deployment", plural="deployments")
PODS = Resource(group="", version="v1", kind="Pod", plural="pods")
SERVICES = Resource(group="", version="v1", kind="Service", plural="services")
CONFIGMAPS = Resource(group="", version="v1", kind="ConfigMap", plural="configmaps")
SECRETS = Resource(group="", version="v1", kind="Secret", plural="secrets")
SERVICE_ACCOUNTS = Resource(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
ROLES = Resource(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles")
ROLE_BINDINGS = Resource(
    group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings"
)
NETWORK_POLICIES = Resource(
    group="networking.k8s.io", version="v1", kind="NetworkPolicy", plural="networkpolicies"
)
POD_DISRUPTION_BUDGETS = Resource(
    group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets"
)
HTTP_ROUTES = Resource(
    group="gateway.networking.k8s.io", version="v1", kind="HTTPRoute", plural="httproutes"
)
POD_MONITORS = Resource(
    group="monitoring.coreos.com", version="v1", kind="PodMonitor", plural="podmonitors"
)
CERTIFICATES = Resource(
    group="cert-manager.io", version="v1", kind="Certificate", plural="certificates"
)
EVENTS = Resource(group="", version="v1", kind="Event", plural="events")
LEASES = Resource(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")

CHILDREN: tuple[Resource, ...] = (
    SECRETS,
    CONFIGMAPS,
    SERVICE_ACCOUNTS,
    ROLES,
    ROLE_BINDINGS,
    SERVICES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    STATEFULSETS,
    DEPLOYMENTS,
)
"""Kinds of children, in the order in which they are applied: what others need comes first."""

OPTIONAL_CHILDREN: tuple[Resource, ...] = (CERTIFICATES, HTTP_ROUTES, POD_MONITORS)
"""Kinds of children whose API a cluster may lack: `discovery.py` asks before they are touched.
They are not watched: a hand edit of one is repaired by the resync."""

ALL_CHILDREN: tuple[Resource, ...] = (*CHILDREN, *OPTIONAL_CHILDREN)

LISTED_CHILDREN: tuple[Resource, ...] = tuple(r for r in CHILDREN if r is not SECRETS)
"""Children found by LIST. The one Secret is read by name: nobody who may only get a Secret whose
name it knows should be given `list`, which hands out every Secret of the namespace."""

WATCHED: tuple[Resource, ...] = (*LISTED_CHILDREN, PODS)
"""Kinds whose events wake a reconcile, beside the KVServing itself."""

_BY_KIND: dict[tuple[str, str], Resource] = {
    (r.api_version, r.kind): r for r in (KVSERVINGS, *ALL_CHILDREN, PODS, EVENTS, LEASES)
}


def resource_of(manifest: Manifest) -> Resource:
    """The table entry of an object; KeyError for a kind the operator does not handle."""
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]
