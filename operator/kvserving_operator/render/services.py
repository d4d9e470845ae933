"""The Services. Pure."""

from collections.abc import Mapping
from typing import Any

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.engines.ports import Port
from kvserving_operator.plan.labels import leader_selector, selector
from kvserving_operator.plan.model import Manifest, Plan, RolePlan, RouterPlan, TierPlan
from kvserving_operator.render.metadata import metadata


def engine_service(plan: Plan, role: RolePlan) -> Manifest:
    """Headless: the ready engines of a role."""
    return _service(
        plan,
        role.name,
        role.role.value,
        spec={
            "clusterIP": "None",
            "selector": leader_selector(plan.name, role.role),
            "ports": [_port(role.launch.http), _port(ports.AGENT)],
        },
    )


def valkey_service(plan: Plan, tier: TierPlan) -> Manifest:
    """Headless, with the names of instances that are not ready: engines name each of them."""
    return _service(
        plan,
        tier.name,
        Role.VALKEY.value,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(plan.name, Role.VALKEY),
            "ports": [_port(ports.VALKEY)],
        },
    )


def front_service(plan: Plan, router: RouterPlan) -> Manifest:
    """The front door, called like the KVServing: the OpenAI API on port 80."""
    return _service(
        plan,
        plan.names.front,
        Role.ROUTER.value,
        annotations=router.service_annotations,
        spec={
            "type": router.service_type,
            "selector": selector(plan.name, Role.ROUTER),
            "ports": [_port(ports.ROUTER_SERVICE, target=ports.ROUTER_HTTP)],
        },
    )


def metrics_service(plan: Plan) -> Manifest:
    """Headless: the metrics of every router replica."""
    return _service(
        plan,
        plan.names.metrics,
        Role.ROUTER.value,
        spec={
            "clusterIP": "None",
            "selector": selector(plan.name, Role.ROUTER),
            "ports": [_port(ports.ROUTER_METRICS)],
        },
    )


def _service(
    plan: Plan,
    name: str,
    component: str,
    *,
    spec: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(plan, name, component, annotations=annotations),
        "spec": dict(spec),
    }


def _port(port: Port, *, target: Port | None = None) -> dict[str, Any]:
    return {
        "name": port.name,
        "port": port.number,
        "targetPort": (target or port).name,
        "protocol": port.protocol.value,
    }
