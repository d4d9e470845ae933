"""A minimal client of the API server: JSON over HTTPS with a client certificate, nothing else.

For the tool's own few calls; importing a full client would cost more than `status` takes.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.errors import ClusterError

Object = dict[str, Any]


class ApiError(ClusterError):
    """The API server could not be reached (status 0) or answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Endpoint:
    """Where an API server is, and the certificates to speak to it with."""

    host: str
    port: int
    context: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> Endpoint:
        """That of a kubeconfig that the tool wrote: JSON, one cluster, one user."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pem:
            for field in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user[field]))
            pem.flush()
            context.load_cert_chain(pem.name)
        address = urlsplit(cluster["server"])
        return cls(address.hostname or "", address.port or 443, context)

    def connection(self, *, timeout: float) -> http.client.HTTPSConnection:
        """A new connection, which is opened by its first request."""
        return http.client.HTTPSConnection(
            self.host, self.port, context=self.context, timeout=timeout
        )


class ApiClient:
    """Calls as the user of a kubeconfig that the tool wrote."""

    def __init__(self, kubeconfig: Path, *, timeout: float = 10) -> None:
        self._endpoint = Endpoint.of(kubeconfig)
        self._timeout = timeout

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "",
        accept: str = "application/json",
    ) -> bytes:
        """One request; raise ApiError when there is no answer or an error answer."""
        headers = {"User-Agent": "kvserving-cluster", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        payload = None if body is None else json.dumps(body)
        connection = self._endpoint.connection(timeout=self._timeout)
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status >= 400:
            text = data.decode(errors="replace")[:300]
            raise ApiError(answer.status, f"{method} {path}: HTTP {answer.status}: {text}")
        return data

    def get_table(self, path: str) -> Object:
        """GET one object or list as the table that kubectl prints."""
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table: Object = json.loads(self.request("GET", path, accept=accept))
        return table

    def get(self, path: str) -> Object:
        """GET one object or list."""
        found: Object = json.loads(self.request("GET", path))
        return found

    def create(self, path: str, body: Object) -> Object:
        """POST an object to a collection."""
        made: Object = json.loads(self.request("POST", path, body))
        return made

    def merge_patch(self, path: str, body: Object) -> Object:
        """JSON merge patch."""
        content_type = "application/merge-patch+json"
        changed: Object = json.loads(self.request("PATCH", path, body, content_type=content_type))
        return changed

    def delete(self, path: str) -> None:
        """DELETE; an absent object is fine."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def ready(self) -> bool:
        """Whether /readyz says ok."""
        try:
            return self.request("GET", "/readyz") == b"ok"
        except ApiError:
            return False
