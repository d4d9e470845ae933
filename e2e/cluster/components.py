"""Command lines of the control plane's programs. Pure: settings in, argument lists out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster import pki, settings
from cluster.settings import Ports

ETCD = "etcd"
APISERVER = "apiserver"
CONTROLLER_MANAGER = "controller-manager"
SCHEDULER = "scheduler"


@dataclass(frozen=True)
class Layout:
    """What command lines need to know: where things are and which addresses count."""

    state: Path
    programs: dict[str, Path]
    ports: Ports
    node_ip: str
    #: True: served on every address, so that pods reach it; False: on loopback only.
    reachable: bool

    @property
    def pki(self) -> pki.Pki:
        """The key material."""
        return pki.Pki(self.state)

    @property
    def server(self) -> str:
        """URL of the API server as used on this machine."""
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.state / "log" / "audit.log"

    def key(self, file: str) -> str:
        """Path of a file of the key folder, as an argument."""
        return str(self.pki.path(file))


def etcd(layout: Layout) -> list[str]:
    """A single member on loopback. Its data is not worth an fsync."""
    client = f"http://127.0.0.1:{layout.ports.etcd_client}"
    peer = f"http://127.0.0.1:{layout.ports.etcd_peer}"
    return [
        str(layout.programs["etcd"]),
        f"--data-dir={layout.state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str]:
    """The API server, with the audit log and the plugins that a strict production cluster has."""
    advertise = layout.node_ip or "192.0.2.1"  # a documentation address: nobody dials it
    argv = [
        str(layout.programs["kube-apiserver"]),
        f"--etcd-servers=http://127.0.0.1:{layout.ports.etcd_client}",
        f"--secure-port={layout.ports.apiserver}",
        f"--advertise-address={advertise}",
        f"--tls-cert-file={layout.key('apiserver.crt')}",
        f"--tls-private-key-file={layout.key('apiserver.key')}",
        f"--client-ca-file={layout.key('ca.crt')}",
        f"--service-account-key-file={layout.key('sa.pub')}",
        f"--service-account-signing-key-file={layout.key('sa.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={settings.SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        "--profiling=false",
        f"--audit-policy-file={layout.state / 'config' / 'audit-policy.json'}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=2000",
    ]
    if layout.reachable:
        return [
            *argv,
            f"--kubelet-client-certificate={layout.key('kubelet-client.crt')}",
            f"--kubelet-client-key={layout.key('kubelet-client.key')}",
            "--kubelet-preferred-address-types=InternalIP",
        ]
    return [*argv, "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]


def controller_manager(layout: Layout, *, controllers: str) -> list[str]:
    """The controllers, each under its own account so that the audit log tells them apart."""
    return [
        str(layout.programs["kube-controller-manager"]),
        f"--kubeconfig={layout.pki.kubeconfig(pki.CONTROLLER_MANAGER)}",
        f"--service-account-private-key-file={layout.key('sa.key')}",
        f"--root-ca-file={layout.key('ca.crt')}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--controllers={controllers}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports.controller_manager}",
        "--profiling=false",
    ]


def scheduler(layout: Layout) -> list[str]:
    """The scheduler."""
    return [
        str(layout.programs["kube-scheduler"]),
        f"--kubeconfig={layout.pki.kubeconfig(pki.SCHEDULER)}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports.scheduler}",
        "--profiling=false",
    ]
