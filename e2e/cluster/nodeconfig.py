"""Configuration files and command lines of the node's programs. Pure: settings in, text out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import pki, settings
from cluster.components import Layout

CONTAINERD = "containerd"
KUBELET = "kubelet"
PROXY = "kube-proxy"
DNS = "coredns"
ROUTER = "kube-router"
KWOK = "kwok"


@dataclass(frozen=True)
class NodePaths:
    """Folders of the node in the state folder."""

    state: Path

    @property
    def containerd_root(self) -> Path:
        """Images and snapshots: kept across `down`."""
        return self.state / "containerd"

    @property
    def kubelet(self) -> Path:
        """kubelet's root: volumes of pods."""
        return self.state / "kubelet"

    @property
    def config(self) -> Path:
        """Configuration files."""
        return self.state / "config"


def containerd_toml(paths: NodePaths) -> str:
    """containerd's configuration; all its folders are ours, none is another containerd's."""
    runtime = "io.containerd.grpc.v1.cri"
    unused = [
        "io.containerd.snapshotter.v1.aufs",
        "io.containerd.snapshotter.v1.btrfs",
        "io.containerd.snapshotter.v1.devmapper",
        "io.containerd.snapshotter.v1.zfs",
        "io.containerd.tracing.processor.v1.otlp",
        "io.containerd.internal.v1.tracing",
    ]
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE a sandbox dies while it starts ("can't get
    # final child's PID from pipe").
    return f"""version = 2
root = "{paths.containerd_root}"
state = "{settings.CONTAINERD_STATE}"
disabled_plugins = {json.dumps(unused)}
[grpc]
  address = "{settings.CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{paths.containerd_root}/opt"
[plugins."{runtime}"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{settings.PAUSE_IMAGE}"
  [plugins."{runtime}".containerd]
    snapshotter = "overlayfs"
    [plugins."{runtime}".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."{runtime}".containerd.runtimes.runc.options]
        Root = "{settings.CONTAINERD_STATE}/runc"
  [plugins."{runtime}".cni]
    bin_dir = "{settings.CNI_BIN_DIR}"
    conf_dir = "{paths.state}/cni/net.d"
"""


def containerd(paths: NodePaths) -> list[str]:
    """containerd; its shims live in its session and so share its priority."""
    return ["containerd", "--config", str(paths.config / "containerd.toml")]


def kubelet_config(layout: Layout) -> dict[str, Any]:
    """kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": layout.key("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "port": settings.KUBELET_PORT,
        "healthzPort": settings.KUBELET_HEALTH_PORT,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.CGROUP_ROOT}",
        "failCgroupV1": False,  # kubelet 1.35 and newer refuse cgroup v1 otherwise
        "failSwapOn": False,
        "clusterDNS": [settings.DNS_IP],
        "clusterDomain": settings.CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{settings.CONTAINERD_SOCKET}",
        "podLogsDir": str(layout.state / "log" / "pods"),
        "volumePluginDir": str(layout.state / "kubelet" / "plugins-exec"),
        # Images come from an import, nobody could pull them again: none is ever collected.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "memory.available": "100Mi",
        },
        "maxPods": 250,
    }


def kubelet(layout: Layout, paths: NodePaths) -> list[str]:
    """kubelet."""
    return [
        str(layout.programs["kubelet"]),
        f"--config={paths.config / 'kubelet.json'}",
        f"--kubeconfig={layout.pki.kubeconfig(pki.KUBELET)}",
        f"--hostname-override={settings.NODE_NAME}",
        f"--root-dir={paths.kubelet}",
        f"--cert-dir={paths.kubelet / 'pki'}",
        f"--node-ip={layout.node_ip}",
    ]


def proxy(layout: Layout) -> list[str]:
    """kube-proxy; the three conntrack settings are read-only on some machines."""
    return [
        str(layout.programs["kube-proxy"]),
        f"--kubeconfig={layout.pki.kubeconfig(pki.PROXY)}",
        "--proxy-mode=iptables",
        f"--hostname-override={settings.NODE_NAME}",
        f"--cluster-cidr={settings.POD_CIDR}",
        f"--healthz-bind-address=127.0.0.1:{settings.PROXY_HEALTH_PORT}",
        f"--metrics-bind-address=127.0.0.1:{settings.PROXY_METRICS_PORT}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def corefile(layout: Layout) -> str:
    """CoreDNS's configuration: names of the cluster; that others do not exist is said at once."""
    return f""".:53 {{
    bind {settings.DNS_IP}
    ready 127.0.0.1:{settings.DNS_READY_PORT}
    errors
    kubernetes {settings.CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {layout.pki.kubeconfig(pki.DNS)} kvserving
        pods insecure
        ttl 5
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
    cache 5
}}
"""


def dns(layout: Layout, paths: NodePaths) -> list[str]:
    """CoreDNS."""
    return [str(layout.programs["coredns"]), "-conf", str(paths.config / "Corefile")]


def router(layout: Layout) -> list[str]:
    """kube-router, as the enforcer of NetworkPolicy only."""
    return [
        str(layout.programs["kube-router"]),
        "--run-router=false",
        "--run-firewall=true",
        "--run-service-proxy=false",
        f"--kubeconfig={layout.pki.kubeconfig(pki.ROUTER)}",
        f"--hostname-override={settings.NODE_NAME}",
        f"--service-cluster-ip-range={settings.SERVICE_CIDR}",
        f"--health-port={settings.ROUTER_HEALTH_PORT}",
    ]


def kwok(layout: Layout, paths: NodePaths) -> list[str]:
    """kwok, which plays the kubelet of nodes that carry its annotation, and only of those."""
    return [
        str(layout.programs["kwok"]),
        f"--kubeconfig={layout.pki.kubeconfig(pki.KWOK)}",
        f"--config={paths.config / 'kwok.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
    ]
