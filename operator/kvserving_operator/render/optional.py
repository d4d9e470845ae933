"""Objects of APIs that a cluster may lack: they are left out where it does. Pure."""

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.plan.labels import selector_of_all
from kvserving_operator.plan.model import (
    CertificatePlan,
    Manifest,
    MonitorPlan,
    Plan,
    RoutePlan,
)
from kvserving_operator.render.metadata import metadata


def http_route(plan: Plan, route: RoutePlan) -> Manifest:
    """The HTTPRoute from the user's Gateway to the front Service: every path, streams included."""
    backend = {
        "group": "",
        "kind": "Service",
        "name": plan.names.front,
        "port": ports.ROUTER_SERVICE.number,
        "weight": 1,
    }
    spec: dict[str, object] = {"parentRefs": [dict(parent) for parent in route.parents]}
    if route.hostnames:
        spec["hostnames"] = list(route.hostnames)
    path = {"type": "PathPrefix", "value": "/"}
    spec["rules"] = [{"matches": [{"path": path}], "backendRefs": [backend]}]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(plan, plan.names.front, Role.ROUTER.value),
        "spec": spec,
    }


def pod_monitor(plan: Plan, monitor: MonitorPlan) -> Manifest:
    """The PodMonitor: agents beside the engines, and routers.

    Not the engines: whoever reaches their port reaches their whole unauthenticated API.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(plan, plan.names.base, "metrics", labels=monitor.labels),
        "spec": {
            "selector": {"matchLabels": selector_of_all(plan.name)},
            "podMetricsEndpoints": [
                {"port": port.name, "path": "/metrics", "interval": monitor.interval}
                for port in (ports.AGENT, ports.ROUTER_METRICS)
            ],
        },
    }


def tier_certificate(plan: Plan, certificate: CertificatePlan) -> Manifest:
    """The certificate of all tier instances; cert-manager writes it into a Secret of its name."""
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(plan, certificate.name, Role.VALKEY.value),
        "spec": {
            "secretName": certificate.name,
            "dnsNames": list(certificate.hosts),
            "usages": ["digital signature", "key encipherment", "server auth"],
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "issuerRef": dict(certificate.issuer),
        },
    }
