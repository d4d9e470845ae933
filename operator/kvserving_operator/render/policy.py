"""NetworkPolicies, ingress only. Pure.

With vLLM decode opens all connections of a transfer, so prefill needs no way to decode; SGLang's
prefill pushes, so there each role reaches the other. The kubelet's probes come from the node, which
policies do not hold back. Host networking and RDMA go by them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.engines.ports import Port
from kvserving_operator.plan.labels import selector
from kvserving_operator.plan.model import (
    Manifest,
    NetworkPlan,
    Plan,
    RolePlan,
    RouterPlan,
    TierPlan,
)
from kvserving_operator.render.metadata import metadata


def engine_policy(plan: Plan, network: NetworkPlan, role: RolePlan) -> Manifest:
    """The front reaches the API, the operator and scrapers the agent, peers what KV needs."""
    rules = [
        _rule(_front_of(plan, network), [role.launch.http]),
        _rule([_operator(network), *network.metrics_from], [ports.AGENT]),
    ]
    if role.launch.peer_ports:
        peers = [_pods(plan, peer) for peer in role.launch.peers]
        rules.append(_rule(peers, role.launch.peer_ports))
    return _policy(plan, role.name, role.role, rules)


def valkey_policy(plan: Plan, network: NetworkPlan, tier: TierPlan) -> Manifest:
    """The engines that carry the tier, and the operator."""
    peers = [*(_pods(plan, role) for role in tier.carried_by), _operator(network)]
    return _policy(plan, tier.name, Role.VALKEY, [_rule(peers, [ports.VALKEY])])


def router_policy(plan: Plan, network: NetworkPlan, router: RouterPlan) -> Manifest:
    """Clients reach the API, the operator all of it, scrapers the metrics."""
    operator = _operator(network)
    rules = [_rule(network.clients, [ports.ROUTER_HTTP])]
    if network.clients:
        rules.append(_rule([operator], [ports.ROUTER_HTTP]))
    rules.append(_rule([operator, *network.metrics_from], [ports.ROUTER_METRICS]))
    return _policy(plan, router.name, Role.ROUTER, rules)


def _front_of(plan: Plan, network: NetworkPlan) -> Sequence[Mapping[str, Any]]:
    """Who sends requests to engines: our router, or the clients' own when there is none."""
    return network.clients if plan.router is None else [_pods(plan, Role.ROUTER)]


def _policy(plan: Plan, name: str, role: Role, rules: list[dict[str, Any]]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(plan, name, role.value),
        "spec": {
            "podSelector": {"matchLabels": selector(plan.name, role)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        },
    }


def _rule(peers: Iterable[Mapping[str, Any]], allowed: Iterable[Port]) -> dict[str, Any]:
    """One ingress rule; no peers means everybody."""
    rule: dict[str, Any] = {"ports": [_port(port) for port in allowed]}
    if sources := [dict(peer) for peer in peers]:
        rule["from"] = sources
    return rule


def _port(port: Port) -> dict[str, Any]:
    entry: dict[str, Any] = {"port": port.number, "protocol": port.protocol.value}
    return entry if port.end is None else {**entry, "endPort": port.end}


def _pods(plan: Plan, role: Role) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": selector(plan.name, role)}}


def _operator(network: NetworkPlan) -> dict[str, Any]:
    return {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": network.operator_namespace}
        },
        "podSelector": {"matchLabels": dict(network.operator_labels)},
    }
