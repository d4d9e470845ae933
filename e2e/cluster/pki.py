"""Certificates and kubeconfigs of one cluster, by the openssl command.

Keys are elliptic, as RSA ones are slow to make. They belong to one state folder and go with it.
Each component has its own user, so that the audit log tells them apart.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cluster import settings
from cluster.errors import ClusterError
from cluster.processes import write_atomically

VALID_DAYS = 3650
EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
MASTERS = "system:masters"


@dataclass(frozen=True)
class Identity:
    """A user of the cluster: file name, common name, organisation."""

    name: str
    user: str
    group: str = MASTERS


ADMIN = Identity("admin", "kubernetes-admin")
CONTROLLER_MANAGER = Identity("controller-manager", "system:kube-controller-manager", "kvserving")
SCHEDULER = Identity("scheduler", "system:kube-scheduler", "kvserving")
PROXY = Identity("proxy", "system:kube-proxy", "kvserving")
KUBELET = Identity("kubelet", f"system:node:{settings.NODE_NAME}", "system:nodes")
DNS = Identity("coredns", "coredns")
ROUTER = Identity("kube-router", "kube-router")
KWOK = Identity("kwok", "kwok")
KUBELET_CLIENT = Identity("kubelet-client", "kube-apiserver")


class Pki:
    """The key material of one state folder, under `pki/` and `kubeconfig/`."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "pki"
        self._kubeconfigs = state / "kubeconfig"

    def path(self, file: str) -> Path:
        """A file of the key folder."""
        return self.folder / file

    def kubeconfig(self, identity: Identity) -> Path:
        """Where the kubeconfig of a user is."""
        return self._kubeconfigs / f"{identity.name}.kubeconfig"

    def create(self, *, server: str, names: list[str], addresses: list[str]) -> None:
        """Make the authority and the API server's certificate, unless made for these names."""
        wanted = json.dumps([server, names, addresses])
        stamp = self.path("server.json")
        if stamp.exists() and stamp.read_text() == wanted:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in (*self.folder.iterdir(), *self._kubeconfigs.glob("*")):
            old.unlink()
        self._self_signed("ca")
        self._service_account_key()
        sans = [f"DNS:{name}" for name in names] + [f"IP:{address}" for address in addresses]
        self._issue("apiserver", "/O=kvserving/CN=kube-apiserver", ",".join(sans))
        write_atomically(stamp, wanted)

    def add(self, identity: Identity, server: str) -> None:
        """Make a user's certificate and kubeconfig, unless it exists."""
        target = self.kubeconfig(identity)
        if target.exists():
            return
        self._issue(identity.name, f"/O={identity.group}/CN={identity.user}")
        write_atomically(target, self._render(identity, server), mode=0o600)

    def _self_signed(self, name: str) -> None:
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
        self._request(name, f"/CN=kvserving-{name}", [*extensions, "subjectKeyIdentifier=hash"])

    def _service_account_key(self) -> None:
        key = str(self.path("sa.key"))
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        _openssl("ec", "-in", key, "-pubout", "-out", str(self.path("sa.pub")))

    def _issue(self, name: str, subject: str, sans: str = "") -> None:
        extensions = [
            "basicConstraints=critical,CA:FALSE",
            "extendedKeyUsage=clientAuth,serverAuth",
        ]
        extensions += ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
        if sans:
            extensions.append(f"subjectAltName={sans}")
        authority = ["-CA", str(self.path("ca.crt")), "-CAkey", str(self.path("ca.key"))]
        self._request(name, subject, extensions, *authority)

    def _request(self, name: str, subject: str, extensions: list[str], *signer: str) -> None:
        # A configuration of our own: the machine's may add extensions that contradict these.
        config = self.path(f"{name}.cnf")
        lines = ["[req]", "distinguished_name=dn", "[dn]", "[ext]", *extensions]
        config.write_text("\n".join(lines) + "\n")
        _openssl(
            "req", "-x509", *EC, "-days", str(VALID_DAYS), "-subj", subject,
            "-config", str(config), "-extensions", "ext", *signer,
            "-keyout", str(self.path(f"{name}.key")), "-out", str(self.path(f"{name}.crt")),
        )  # fmt: skip

    def _render(self, identity: Identity, server: str) -> str:
        def data(file: str) -> str:
            return base64.b64encode(self.path(file).read_bytes()).decode()

        user = {
            "client-certificate-data": data(f"{identity.name}.crt"),
            "client-key-data": data(f"{identity.name}.key"),
        }
        cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kvserving", "cluster": cluster}],
            "users": [{"name": identity.name, "user": user}],
            "contexts": [
                {"name": "kvserving", "context": {"cluster": "kvserving", "user": identity.name}}
            ],
            "current-context": "kvserving",
        }
        return json.dumps(config, indent=1) + "\n"  # JSON is YAML


def _openssl(*args: str) -> None:
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"openssl {args[0]} failed: {reason}")
