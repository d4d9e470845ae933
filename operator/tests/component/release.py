"""The operator as the chart installs it: its ServiceAccount, and the roles that helm renders."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import yaml

from cluster import binaries
from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource

from .apiserver import APPLY, Object, Server
from .harness import REPOSITORY

CHART = REPOSITORY / "charts" / "kvserving-operator"
NAME = "kvserving"
RBAC = paths.ROLES.group
_CLUSTER_ROLES = Resource(group=RBAC, version="v1", kind="ClusterRole", plural="clusterroles")
_CLUSTER_ROLE_BINDINGS = Resource(
    group=RBAC, version="v1", kind="ClusterRoleBinding", plural="clusterrolebindings"
)
_KINDS = {
    resource.kind: resource
    for resource in (
        paths.SERVICE_ACCOUNTS,
        paths.ROLES,
        paths.ROLE_BINDINGS,
        _CLUSTER_ROLES,
        _CLUSTER_ROLE_BINDINGS,
    )
}
"""What of a release decides who may do what; the rest of it needs a node."""


class Release:
    """One release of the chart on a control plane, its rights and nothing else of it."""

    def __init__(self, plane: ControlPlane, namespace: str, *served: str) -> None:
        """`served`: the value `namespaces`, all of which exist; none of them for the cluster."""
        self.namespace = namespace
        self.user = f"system:serviceaccount:{namespace}:{NAME}"
        self._plane, self._server = plane, Server(plane.kubeconfig)
        self.objects = self._rendered(served)

    def install(self) -> None:
        for manifest in self.objects:
            self.apply(manifest)

    def apply(self, manifest: Object) -> None:
        """One object of the release, changed or as it was."""
        metadata = manifest["metadata"]
        path = _KINDS[manifest["kind"]].path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": "helm", "force": "true"}
        answer = self._server.send("PATCH", path, manifest, content_type=APPLY, **query)
        assert answer.ok, answer.message

    def role(self, namespace: str) -> Object:
        """The Role of a served namespace."""
        roles = (o for o in self.objects if o["kind"] == "Role" and o["metadata"]["name"] == NAME)
        return next(role for role in roles if role["metadata"]["namespace"] == namespace)

    def kubeconfig(self, folder: Path) -> Path:
        """Of the ServiceAccount, with a token as its pod would get one."""
        admin = json.loads(self._plane.kubeconfig.read_text())
        admin["users"][0]["user"] = {"token": self._token()}
        path = folder / f"{self.namespace}.kubeconfig"
        path.write_text(json.dumps(admin))
        return path

    def _token(self) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{NAME}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token: str = self._plane.api.create(path, body)["status"]["token"]
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["sub"] == self.user
        return token

    def _rendered(self, served: tuple[str, ...]) -> list[Object]:
        values = json.dumps(list(served))
        command = [str(binaries.ensure((binaries.HELM,), quiet=True)["helm"]), "template", NAME]
        command += [str(CHART), "-n", self.namespace, "--set-json", f"namespaces={values}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = [o for o in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if o]
        return [o for o in found if o["kind"] in _KINDS and not _aggregated(o)]


def _aggregated(manifest: Object) -> bool:
    """Whether it is a role for users of the cluster, not for the operator."""
    return any(key.startswith(f"{RBAC}/aggregate") for key in manifest["metadata"]["labels"])
