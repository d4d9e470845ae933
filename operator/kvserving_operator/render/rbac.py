"""The router's account: it watches the pods of its namespace, and nothing more. Pure."""

from kvserving_operator.engines.base import Role
from kvserving_operator.plan.model import Manifest, Plan, RouterPlan
from kvserving_operator.render.metadata import metadata

_API = "rbac.authorization.k8s.io"


def service_account(plan: Plan, router: RouterPlan) -> Manifest:
    """The account; only the router's own pods mount its token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(plan, router.name, Role.ROUTER.value),
        "automountServiceAccountToken": False,
    }


def pod_reader(plan: Plan, router: RouterPlan) -> Manifest:
    """Service discovery lists and watches pods; the API cannot narrow that to a label."""
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "Role",
        "metadata": metadata(plan, router.name, Role.ROUTER.value),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    }


def pod_reader_binding(plan: Plan, router: RouterPlan) -> Manifest:
    """The account gets the role."""
    return {
        "apiVersion": f"{_API}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(plan, router.name, Role.ROUTER.value),
        "roleRef": {"apiGroup": _API, "kind": "Role", "name": router.name},
        "subjects": [{"kind": "ServiceAccount", "name": router.name, "namespace": plan.namespace}],
    }
