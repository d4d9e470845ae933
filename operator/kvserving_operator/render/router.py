"""The router's Deployment. Pure."""

from typing import Any

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.plan import volumes
from kvserving_operator.plan.labels import selector
from kvserving_operator.plan.model import Manifest, Plan, RouterPlan
from kvserving_operator.render import pod
from kvserving_operator.render.metadata import metadata

GRACE_SECONDS = 60
PROBE_PERIOD = 2


def router_deployment(plan: Plan, router: RouterPlan) -> Manifest:
    """The Deployment. A new pod is there before an old one goes: the router holds no KV."""
    base = pod.template(plan, Role.ROUTER, _spec(plan, router))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(plan, router.name, Role.ROUTER.value),
        "spec": {
            "replicas": router.replicas,
            # The router is started when it has engines; that may take as long as they do.
            "progressDeadlineSeconds": router.startup_seconds + GRACE_SECONDS,
            "selector": {"matchLabels": selector(plan.name, Role.ROUTER)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": pod.with_user_templates(base, router.pod_templates),
        },
    }


def _spec(plan: Plan, router: RouterPlan) -> dict[str, Any]:
    return {
        "serviceAccountName": router.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod.pod_security(),
        **pod.image_pull_secrets(plan),
        "containers": [_container(router)],
        "volumes": [{"name": volumes.TMP, "emptyDir": {}}],
    }


def _container(router: RouterPlan) -> dict[str, Any]:
    http = ports.ROUTER_HTTP.number
    return {
        "name": Role.ROUTER.value,
        "image": router.image,
        "command": list(router.command),
        "args": [pod.literal(argument) for argument in router.arguments],
        "env": pod.environment(router.environment),
        "ports": [
            {"name": port.name, "containerPort": port.number, "protocol": port.protocol.value}
            for port in (ports.ROUTER_HTTP, ports.ROUTER_METRICS)
        ],
        # Started: every role has a worker. A new replica gets no request before it can serve one.
        "startupProbe": pod.http_probe(
            "/readiness",
            http,
            period=PROBE_PERIOD,
            failures=max(1, -(-router.startup_seconds // PROBE_PERIOD)),
            timeout=5,
        ),
        # From then on it stays ready: with no engine left its 503 says more than a refused
        # connection would.
        "readinessProbe": pod.http_probe("/health", http, period=5, failures=3, timeout=5),
        "livenessProbe": pod.http_probe("/liveness", http, period=10, failures=6, timeout=5),
        "resources": dict(router.resources),
        "securityContext": pod.container_security(),
        "volumeMounts": [{"name": volumes.TMP, "mountPath": "/tmp"}],  # noqa: S108
    }
