"""What an engine must say so that ``plan`` and ``render`` need no engine ``if``. Pure.

``plan`` decides the topology and the wiring and asks the engine for rules and command lines;
``render`` turns the answers into objects without knowing which engine gave them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from kvserving_operator.api import quantity
from kvserving_operator.api.types import EnvVar
from kvserving_operator.api.v1alpha1 import (
    Attention,
    DecodeSpec,
    EngineFeature,
    KVServing,
    KVServingSpec,
    LoadFailurePolicy,
    LoadingMode,
    Parallelism,
    PrefillSpec,
    RemoteType,
)
from kvserving_operator.engines.faults import Fault
from kvserving_operator.engines.ports import Port

EngineRoleSpec = PrefillSpec | DecodeSpec
"""The spec of a role that runs engines."""


class Role(StrEnum):
    """What a pod does; the value of the role label."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"
    VALKEY = "valkey"


ENGINE_CONTAINER: Final = "engine"
AGENT_CONTAINER: Final = "agent"
WAIT_CONTAINER: Final = "wait-for-tier"

TIER_USER: Final = "engine"
"""The tier's ACL user of the engines."""
TIER_PASSWORD_KEY: Final = "valkey-engine-password"  # noqa: S105 - a key, not a password
"""Key of Secret X-auth that holds TIER_USER's password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A spec on trial: what every rule looks at."""

    name: str
    spec: KVServingSpec
    roles: tuple[tuple[Role, EngineRoleSpec], ...]
    """The engine roles in the order prefill, decode."""
    wants_cache: bool
    """Whether LMCache runs at all: a local or a remote tier is asked for."""

    @classmethod
    def of(cls, kvserving: KVServing) -> "Proposal":
        """The proposal of an object."""
        spec = kvserving.spec
        roles: tuple[tuple[Role, EngineRoleSpec], ...] = ((Role.DECODE, spec.decode),)
        if spec.prefill is not None:
            roles = ((Role.PREFILL, spec.prefill), *roles)
        local = quantity.to_bytes(spec.kv_cache.local.size_per_replica or 0)
        return cls(
            name=kvserving.metadata.name,
            spec=spec,
            roles=roles,
            wants_cache=local > 0 or spec.kv_cache.remote.type is not RemoteType.NONE,
        )

    @property
    def cache_role(self) -> Role:
        """The role that carries the tier when there is one: prefill, or decode without a split."""
        return self.roles[0][0]

    @property
    def cache_role_spec(self) -> EngineRoleSpec:
        """The spec of ``cache_role``."""
        return self.roles[0][1]

    @property
    def attention(self) -> Attention:
        """The attention as far as it is known; context parallel prefill implies MLA."""
        stated = self.spec.model.attention
        context = self.spec.prefill is not None and (
            self.spec.prefill.parallelism.prefill_context > 1
        )
        return Attention.MLA if stated is Attention.AUTO and context else stated

    def has(self, feature: EngineFeature) -> bool:
        """Whether the image promises ``feature``."""
        return feature in self.spec.engine.features


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How one replica of a role is spread over ranks."""

    world_size: int
    """Ranks of one data-parallel replica."""
    workers: int
    """Worker processes of the pod: ``world_size`` times the data-parallel ranks."""
    accelerators: int
    """Accelerators of the pod, were the role to use any."""
    kv_ranks: int
    """W: ranks over which the KV of one sequence is spread (MLA: copies that share the work)."""
    data_ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAuth:
    """Where the engines' user and password of the tier are."""

    secret: str
    password_key: str
    user: str | None = None
    """The user's name; None: it stands in the Secret too."""
    user_key: str = ""
    """Key of the Secret that holds it, when ``user`` is None."""
    quoted: bool = False
    """User and password stand in the Secret as in a URL: percent-encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAccess:
    """The remote tier as its clients see it, whoever runs it."""

    instances: tuple[str, ...]
    """``host:port`` of every instance in ordinal order; ordinal = slot * W + rank."""
    template: str
    """The same for a client that knows its rank: {ordinal}, {rank} and {slot} are numbers."""
    slots: int
    """Instances for each rank."""
    tls: bool
    authority_secret: str
    """Secret whose ca.crt vouches for the instances; empty: the image's own authorities."""
    auth: TierAuth | None
    database: int | None
    """Number of the database that keeps this epoch's keys from those of another, for a client
    whose keys do not carry it; None where the instances may have one database only."""
    epoch: str
    """Hash of everything that makes old KV wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What LMCache is told, as far as it does not depend on the role."""

    chunk_tokens: int
    local_bytes_per_rank: int
    """Host memory of one worker for KV, in bytes."""
    local_bytes_first_rank: int
    """The same for the first of the workers that share their KV, when only that one stores."""
    min_tokens: int | None
    """Fewest tokens of a hit that are loaded; None leaves it to the client."""
    remote: TierAccess | None
    """The remote tier, or None."""
    ranks: int
    attention: Attention
    """As far as it is known."""
    loading: LoadingMode
    """How hits are loaded by a client that can choose, until it is told otherwise."""
    revision: str
    """Of the weights; in the keys of a client that makes its own."""
    digest: str
    features: frozenset[EngineFeature]
    decided: str = ""
    """What the tuner decided for a client that is told when it starts; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the KV of one role travels."""

    transfers: bool
    """KV goes from prefill to decode."""
    cache: CacheSettings | None
    """LMCache in this role, or None."""
    stack_carries_cache: bool
    """LMCache in any role of the stack: both roles must then agree on the KV manager."""
    lease_seconds: int
    """How long a prefill keeps finished KV for its decode."""
    load_failure: LoadFailurePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the engine container of one role is started and found."""

    executable: tuple[str, ...]
    """The program, without its arguments."""
    arguments: tuple[str, ...]
    """One element per word, exactly as the program shall see them."""
    environment: tuple[EnvVar, ...]
    """In an order in which every $(NAME) refers to an earlier entry."""
    scratch: tuple[str, ...]
    """Folders whose files of an earlier run of this container are removed before the start."""
    http: Port
    peers: tuple[Role, ...]
    """Roles whose engines open ``peer_ports``."""
    peer_ports: tuple[Port, ...]
    health_path: str
    annotations: Mapping[str, str]
    """On the pods: what routers other than ours read there."""
    cache_file: Mapping[str, Any] | None
    """Content of the LMCache file, or None."""
    store: Port | None
    """Where, on loopback, the store in the engine is asked for its state; None: there is none."""
    hot: Port | None
    """The same for GraniKV in the engine."""


class Engine(Protocol):
    """One inference engine."""

    def rules(self, proposal: Proposal) -> Iterable[Fault]:
        """Everything about ``proposal`` that this engine cannot do."""
        ...

    def environment_remedy(self, name: str, value: str | None) -> str | None:
        """The remedy when the operator owns an environment variable; None when it is free."""
        ...

    def kv_arguments(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """The elements of ``arguments`` that shape the KV, for the tier epoch."""
        ...

    def topology(self, parallelism: Parallelism, attention: Attention) -> Topology:
        """How ``parallelism`` spreads a replica over ranks."""
        ...

    def launch(self, proposal: Proposal, role: Role, wiring: Wiring) -> Launch:
        """The command line of ``role``. The proposal has no fault."""
        ...
