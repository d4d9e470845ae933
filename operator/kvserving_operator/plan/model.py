"""The decisions of one pass as values: what ``plan.build`` returns and ``render`` reads. Pure.

A ``Plan`` is complete: ``render`` looks at nothing else but the passwords and the owner, and holds
no engine and no router ``if``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvserving_operator.api.types import EnvVar
from kvserving_operator.cost import Pool
from kvserving_operator.engines.base import Launch, Role, TierAccess, Topology
from kvserving_operator.engines.faults import Fault
from kvserving_operator.plan.auth import AuthMaterial, SparePasswords, SpareUse
from kvserving_operator.plan.naming import Names
from kvserving_operator.plan.tuning import TuningPlan

__all__ = [
    "AuthMaterial",
    "CertificatePlan",
    "Defaults",
    "Fault",
    "Manifest",
    "MonitorPlan",
    "Mount",
    "NetworkPlan",
    "OwnerReference",
    "Plan",
    "Refusal",
    "Role",
    "RolePlan",
    "RoutePlan",
    "RouterPlan",
    "SparePasswords",
    "SpareUse",
    "TierPlan",
    "TuningPlan",
    "VolumePlan",
]

Manifest = dict[str, Any]
"""A Kubernetes object as plain JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What the operator brings with it: the same for every KVServing."""

    agent_image: str
    """Image of the agent; the operator's own."""
    router_image: str
    """Image of the router, used where spec.router.image is empty."""
    operator_namespace: str
    operator_labels: Mapping[str, str]
    """Labels of the operator's pods: with the namespace, how NetworkPolicies find them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A spec that cannot be served, with every fault in it."""

    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """The KVServing as its children's controller."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume of the user's in the engine container."""

    name: str
    path: str
    source: Mapping[str, Any]
    """A core/v1 volume source."""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """One engine role: its StatefulSet, its headless Service, its policy and its budget."""

    role: Role
    name: str
    """Name of the StatefulSet and of the headless Service."""
    replicas: int
    max_unavailable: int
    """How many replicas a rollout may take away at once; at least 1."""
    topology: Topology
    accelerators: int
    """Accelerators of one replica; 0 for CPU engines."""
    launch: Launch
    image: str
    resources: Mapping[str, Any]
    """ResourceRequirements of the engine container, everything included."""
    shared_memory_bytes: int
    mounts: tuple[Mount, ...]
    labels: Mapping[str, str]
    """The user's, on pods and StatefulSet."""
    annotations: Mapping[str, str]
    pod_templates: tuple[Mapping[str, Any], ...]
    """Merged into the pod in this order."""
    owned_environment: frozenset[str]
    """Variables that a podTemplate does not change."""
    startup_seconds: int
    drain_seconds: int
    """How long requests may take once the engine lets go."""
    lease_seconds: int
    """How long finished KV stays readable after the last request; 0 where nobody fetches it."""
    grace_seconds: int
    locks_memory: bool
    """RDMA: the engine registers memory and needs IPC_LOCK."""
    engine_type: str
    """How the agent is told to read the engine."""
    wait_for: tuple[str, ...]
    """``host:port`` of every tier instance that the engine waits for, with a bound."""
    wait_with_tls: bool
    authority_secret: str
    """Secret whose ca.crt vouches for the tier; empty: none is mounted."""
    reads_auth: bool
    """The engine reads a password of Secret X-auth when it starts."""
    decided: str
    """What the tuner decided for pods of this role, as their annotation has it; empty: nothing."""
    promises: frozenset[str]
    """Capabilities that the store in these engines must report; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlan:
    """A disk for each instance of the tier."""

    size: str
    storage_class: str
    """Empty: the cluster's default class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePlan:
    """A certificate that cert-manager makes for the tier."""

    name: str
    issuer: Mapping[str, str]
    """name, kind and group of the issuer."""
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """The managed remote tier: its StatefulSet, Service, configuration, policy and budget."""

    name: str
    instances: int
    image: str
    resources: Mapping[str, Any]
    maxmemory_bytes: int
    databases: int
    io_threads: int
    pod_templates: tuple[Mapping[str, Any], ...]
    epoch: str
    """Hash of everything that makes old KV wrong."""
    carried_by: tuple[Role, ...]
    """Roles whose engines read and write the tier."""
    tls_secret: str
    """Secret with tls.crt, tls.key and ca.crt; empty: no TLS."""
    certificate: CertificatePlan | None
    volume: VolumePlan | None
    """A disk for each instance, or None: memory only."""
    grace_seconds: int
    """How long an instance may take to end; with a disk it writes all it holds first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlan:
    """An HTTPRoute, where the Gateway API exists."""

    parents: tuple[Mapping[str, Any], ...]
    """Gateway API parentRefs, as the user wrote them."""
    hostnames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPlan:
    """A PodMonitor, where that API exists."""

    labels: Mapping[str, str]
    """By these a Prometheus selects it."""
    interval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusPlan:
    """A server that is asked for what engines do, and the Secrets to talk to it."""

    url: str
    token: str = ""
    """Name of the Secret with a bearer token; empty: none."""
    token_key: str = ""
    basic: str = ""
    """Name of the Secret with user and password; empty: none."""
    authority: str = ""
    """Name of the Secret with the authorities of its certificate; empty: the image's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterPlan:
    """The router: its Deployment, account, Services, policy and budget."""

    name: str
    replicas: int
    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: tuple[EnvVar, ...]
    resources: Mapping[str, Any]
    pod_templates: tuple[Mapping[str, Any], ...]
    startup_seconds: int
    """How long it may take until every role has a worker."""
    service_type: str
    service_annotations: Mapping[str, str]
    route: RoutePlan | None
    """An HTTPRoute to the front Service, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """Who may open connections to the pods."""

    clients: tuple[Mapping[str, Any], ...]
    """NetworkPolicyPeers; empty means everybody."""
    metrics_from: tuple[Mapping[str, Any], ...]
    """NetworkPolicyPeers beside the operator."""
    operator_namespace: str
    operator_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is wanted for one KVServing."""

    name: str
    namespace: str
    names: Names
    suspended: bool
    agent_image: str
    image_pull_secrets: tuple[str, ...]
    roles: tuple[RolePlan, ...]
    """In the order prefill, decode."""
    tier: TierPlan | None
    external_instances: int
    """Instances of a tier that somebody else runs; 0 without one."""
    tier_epoch: str | None
    """Epoch of the keys in the tier, whoever runs it; None without a tier."""
    tier_access: TierAccess | None
    """How the tier is reached, whoever runs it; None without a tier."""
    look_seconds: float
    """Seconds between two looks at the tier."""
    router: RouterPlan | None
    monitor: MonitorPlan | None
    prometheus: PrometheusPlan | None
    """Who is asked for what engines do; None: their agents."""
    network: NetworkPlan | None
    """None: networkPolicy is Disabled."""
    rollout_paused: bool
    kv_shards: int
    """Parts into which the KV of one sequence is split in the tier."""
    gpus: int
    """Accelerators that all replicas ask for."""
    gpu_budget: int | None
    pool: Pool
    """The engines that compute prompts, and how the router spreads prompts over them."""
    tuning: TuningPlan | None
    """What running engines are asked and told; None: there is nothing to turn."""

    def role(self, role: Role) -> RolePlan | None:
        """The plan of an engine role, or None when the stack has no such role."""
        return next((planned for planned in self.roles if planned.role is role), None)
