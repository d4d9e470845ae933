"""Names, addresses, ports and folders of the embedded cluster: decided here and nowhere else.

Everything else imports them from here; a test that needs the API server's port or the pod network
asks here too. Nothing in this module touches the machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.37.2"
COREDNS_VERSION = "1.15.0"
KUBE_ROUTER_VERSION = "2.1.0"
HELM_VERSION = "4.3.2"
KWOK_VERSION = "0.8.0"

NODE_NAME = "node-0"
# Not 10.88.0.0/16: that is the default network of podman and buildah.
POD_CIDR = "10.87.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = "10.89.0.10"
DNS_LINK = "kvs-dns"
CNI_NETWORK = "kvserving-pods"
CLUSTER_DOMAIN = "cluster.local"

#: Root of the pods' cgroups, so that they can never be mistaken for another kubelet's.
CGROUP_ROOT = "kvserving"
#: Resources advertised on the node as if devices were there: the scheduler and kubelet count them.
EXTENDED_RESOURCES = {"nvidia.com/gpu": "64", "rdma/ib": "64"}
PAUSE_IMAGE = "localhost/kvserving/pause:1"
IMAGE_NAMESPACE = "k8s.io"

#: Run-time files of the one node that a machine can hold; a reboot may empty it.
RUNTIME_DIR = Path("/run/kvserving")
CONTAINERD_SOCKET = RUNTIME_DIR / "containerd.sock"
CONTAINERD_STATE = RUNTIME_DIR / "containerd"
CNI_BIN_DIR = Path("/usr/lib/cni")

#: Unix socket paths end at 107 bytes and kubelet adds about 45 to the state folder.
MAX_STATE_PATH = 60


@dataclass(frozen=True)
class Ports:
    """Ports of the control plane; the node's own are constants below."""

    apiserver: int = 6443
    etcd_client: int = 2379
    etcd_peer: int = 2380
    controller_manager: int = 10257
    scheduler: int = 10259


KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
PROXY_HEALTH_PORT = 10256
PROXY_METRICS_PORT = 10249
ROUTER_HEALTH_PORT = 20244
DNS_READY_PORT = 8181


def cache_dir() -> Path:
    """The folder of everything that is expensive to make again: `$KVSERVING_CACHE`."""
    configured = os.environ.get("KVSERVING_CACHE")
    return Path(configured).absolute() if configured else Path.home() / ".cache" / "kvserving"


def state_dir() -> Path:
    """The folder of the embedded cluster: `$KVSERVING_STATE`."""
    configured = os.environ.get("KVSERVING_STATE")
    return Path(configured).absolute() if configured else cache_dir() / "cluster"


def cluster_kind() -> str:
    """`embedded` (default), `kind` or `current`, from `$CLUSTER`."""
    return os.environ.get("CLUSTER") or "embedded"
