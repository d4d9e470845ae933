"""Where the running instances of a managed tier are, for the operator's own connections."""

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol

from kvserving_operator.engines import ports
from kvserving_operator.engines.base import Role
from kvserving_operator.kube import paths
from kvserving_operator.kube.paths import Resource
from kvserving_operator.observe.gather import Observed
from kvserving_operator.observe.labels import is_ours
from kvserving_operator.observe.tier_client import Address, Trust
from kvserving_operator.plan.model import Manifest, Plan, TierPlan
from kvserving_operator.plan.tier import service_host


class Secrets(Protocol):
    """The part of the API client that reads a Secret."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object, or None."""


def running_pods(tier: TierPlan, observed: Observed) -> dict[int, Manifest]:
    """The instances' own pods that run and have an address, by ordinal.

    The workload's own alone: passwords are not for whoever wears their labels.
    """
    workload = observed.child(paths.STATEFULSETS, tier.name)
    if workload is None:
        return {}
    found = {}
    for pod in observed.pods_of(Role.VALKEY.value):
        metadata, status = pod["metadata"], pod.get("status") or {}
        _, _, number = metadata["name"].rpartition("-")
        runs = status.get("phase") == "Running" and status.get("podIP")
        if not runs or "deletionTimestamp" in metadata or not number.isdigit():
            continue
        if is_ours(pod, workload["metadata"]["uid"]) and int(number) < tier.instances:
            found[int(number)] = pod
    return found


async def addresses_of(
    client: Secrets, plan: Plan, tier: TierPlan, observed: Observed
) -> dict[str, Address | None]:
    """By the name of each wanted instance its address; None where no pod of it runs.

    By the pod's IP: a name may be in a resolver's cache. The certificate is for the name.
    """
    running = {
        f"{tier.name}-{ordinal}": str(pod["status"]["podIP"])
        for ordinal, pod in running_pods(tier, observed).items()
    }
    authority = await _authority(client, plan, tier)
    if tier.tls_secret and not authority:
        running = {}
    names = (f"{tier.name}-{ordinal}" for ordinal in range(tier.instances))
    return {name: _address(plan, running.get(name), name, authority) for name in names}


def _address(plan: Plan, host: str | None, name: str, authority: str) -> Address | None:
    if host is None:
        return None
    server = f"{name}.{service_host(plan.names, plan.namespace)}"
    trust = Trust(name=server, authority=authority) if authority else None
    return Address(host=host, port=ports.VALKEY.number, trust=trust)


async def _authority(client: Secrets, plan: Plan, tier: TierPlan) -> str:
    """PEM of the tier's authority; empty without TLS, and where it cannot be read."""
    if not tier.tls_secret:
        return ""
    secret = await client.get(paths.SECRETS, plan.namespace, tier.tls_secret)
    data: Mapping[str, str] = (secret or {}).get("data") or {}
    try:
        return base64.b64decode(data.get("ca.crt") or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
