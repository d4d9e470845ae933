"""Requests to the real API server with the whole answer, for tests that read its messages."""

import http.client
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from cluster.api import Endpoint
from kvserving_operator.kube.encoding import encode

Object = dict[str, Any]

ROOT = Path(__file__).parents[3]
CRD_FILE = ROOT / "crds" / "kvserving.io_kvservings.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/kvserving.io/v1alpha1"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """Status and body of one request."""

    status: int
    body: Object

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Server:
    """The API server as one user sees it; one connection, opened again when it broke."""

    def __init__(self, kubeconfig: Path, *, user: str = "") -> None:
        """`user`: whom to impersonate; else the kubeconfig's own."""
        self._connection = Endpoint.of(kubeconfig).connection(timeout=30)
        self._identity = {"Impersonate-User": user} if user else {}

    def send(
        self,
        method: str,
        path: str,
        body: Object | bytes | None = None,
        *,
        content_type: str = "application/json",
        **query: str,
    ) -> Answer:
        payload = encode(body) if isinstance(body, dict) else body
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": content_type, "Accept": "application/json", **self._identity}
        for attempt in (1, 2):
            try:
                self._connection.request(method, target, payload, headers)
                answer = self._connection.getresponse()
                data = answer.read()
                break
            except (http.client.HTTPException, OSError):
                self._connection.close()
                if attempt == 2:
                    raise
        try:
            return Answer(answer.status, json.loads(data))
        except ValueError:
            return Answer(answer.status, {"message": data.decode(errors="replace")})

    def create(self, namespace: str, obj: Object | bytes, *, dry_run: bool = True) -> Answer:
        query = {"dryRun": "All"} if dry_run else {}
        return self.send("POST", objects(namespace), obj, fieldValidation="Strict", **query)

    def apply(self, namespace: str, obj: Object, *, manager: str, subresource: str = "") -> Answer:
        path = f"{objects(namespace)}/{obj['metadata']['name']}{subresource}"
        return self.send("PATCH", path, obj, content_type=APPLY, fieldManager=manager, force="true")

    def get(self, namespace: str, name: str, subresource: str = "") -> Answer:
        return self.send("GET", f"{objects(namespace)}/{quote(name)}{subresource}")

    def may_own(self, namespace: str) -> bool:
        """Whether a KVServing may be an owner that blocks its own deletion.

        OwnerReferencesPermissionEnforcement looks for new kinds every 30 seconds, and refuses the
        references of one that it does not know yet (kube-apiserver's admission, its RESTMapper).
        """
        owner = {"apiVersion": GROUP.removeprefix("/apis/"), "kind": "KVServing", "name": "x"}
        owner |= {"uid": "x", "controller": True, "blockOwnerDeletion": True}
        child = {"apiVersion": "v1", "kind": "ConfigMap"}
        child["metadata"] = {"name": "may-own", "ownerReferences": [owner]}
        path = f"/api/v1/namespaces/{namespace}/configmaps/may-own"
        query = {"fieldManager": "test", "dryRun": "All"}
        answer = self.send("PATCH", path, child, content_type=APPLY, **query)
        assert answer.ok or "RESTMapping" in answer.message, answer.message
        return answer.ok

    def install_crd(self) -> None:
        """Apply our CRD and wait until it is served."""
        crd = yaml.safe_load(CRD_FILE.read_text())
        path = f"{CRDS}/{crd['metadata']['name']}"
        done = self.send("PATCH", path, crd, content_type=APPLY, fieldManager="test", force="true")
        assert done.ok, done.message
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status = self.send("GET", path).body.get("status") or {}
            conditions = status.get("conditions") or []
            states = {c["type"]: c["status"] for c in conditions}
            if states.get("Established") == "True" and self.send("GET", objects("default")).ok:
                assert states.get("NonStructuralSchema") is None
                return
            time.sleep(0.05)
        raise AssertionError("the CRD is not served")


def kvserving_in(path: Path) -> Object:
    """The KVServing in a file of the examples, whatever stands beside it, for any namespace."""
    documents = yaml.safe_load_all(path.read_text())
    obj: Object = next(d for d in documents if d and d["kind"] == "KVServing")
    obj["metadata"].pop("namespace", None)
    return obj


def objects(namespace: str) -> str:
    """Path of the KVServings of a namespace."""
    return f"{GROUP}/namespaces/{namespace}/kvservings"
