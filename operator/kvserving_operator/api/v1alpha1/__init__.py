"""``kvserving.io/v1alpha1``: the models of the API, one module for each part of the spec."""

from kvserving_operator.api.v1alpha1.autoscaling import (
    AutomationMode,
    AutoscalingSpec,
    ReplicaRatio,
    RoleAutoscaling,
)
from kvserving_operator.api.v1alpha1.engine import (
    EngineFeature,
    EngineSpec,
    EngineType,
)
from kvserving_operator.api.v1alpha1.kv_cache import (
    HotMode,
    HotSpec,
    KVCacheSpec,
    KVDtype,
    LocalTier,
)
from kvserving_operator.api.v1alpha1.kvserving import (
    KVServing,
    KVServingSpec,
    ObjectMeta,
)
from kvserving_operator.api.v1alpha1.metrics import (
    MetricsSource,
    MetricsSpec,
    PodMonitor,
    Prometheus,
)
from kvserving_operator.api.v1alpha1.model import (
    Attention,
    HuggingFace,
    ModelCache,
    ModelSpec,
    ModelVolume,
)
from kvserving_operator.api.v1alpha1.network import (
    NetworkPolicyMode,
    NetworkPolicySpec,
)
from kvserving_operator.api.v1alpha1.remote_tier import (
    ExternalTier,
    IssuerReference,
    LoadingMode,
    LoadingSpec,
    RemoteTier,
    RemoteType,
    TierPersistence,
    TierTLS,
    TLSMode,
    VolumeClaim,
)
from kvserving_operator.api.v1alpha1.roles import (
    RDMA,
    Accelerator,
    DecodeDrain,
    DecodeSpec,
    Parallelism,
    PrefillDrain,
    PrefillSpec,
    RoleSpec,
)
from kvserving_operator.api.v1alpha1.rollout import (
    RolloutSpec,
    RolloutStrategy,
)
from kvserving_operator.api.v1alpha1.router import (
    RoleRouterPolicy,
    RouterGateway,
    RouterPolicy,
    RouterService,
    RouterSpec,
    RouterType,
    ServiceType,
)
from kvserving_operator.api.v1alpha1.sla import (
    LatencyTargets,
    SLASpec,
)
from kvserving_operator.api.v1alpha1.status import (
    CostModelStatus,
    GPUStatus,
    KVServingStatus,
    RoleStatus,
    ScalingStatus,
    TierStatus,
    TuningChange,
    TuningStatus,
)
from kvserving_operator.api.v1alpha1.transfer import (
    BufferDevice,
    LoadFailurePolicy,
    Nixl,
    PeerRestart,
    TransferConnector,
    TransferSpec,
)
from kvserving_operator.api.v1alpha1.tuning import (
    TuningSpec,
)

__all__ = [
    "RDMA",
    "Accelerator",
    "Attention",
    "AutomationMode",
    "AutoscalingSpec",
    "BufferDevice",
    "CostModelStatus",
    "DecodeDrain",
    "DecodeSpec",
    "EngineFeature",
    "EngineSpec",
    "EngineType",
    "ExternalTier",
    "GPUStatus",
    "HotMode",
    "HotSpec",
    "HuggingFace",
    "IssuerReference",
    "KVCacheSpec",
    "KVDtype",
    "KVServing",
    "KVServingSpec",
    "KVServingStatus",
    "LatencyTargets",
    "LoadFailurePolicy",
    "LoadingMode",
    "LoadingSpec",
    "LocalTier",
    "MetricsSource",
    "MetricsSpec",
    "ModelCache",
    "ModelSpec",
    "ModelVolume",
    "NetworkPolicyMode",
    "NetworkPolicySpec",
    "Nixl",
    "ObjectMeta",
    "Parallelism",
    "PeerRestart",
    "PodMonitor",
    "PrefillDrain",
    "PrefillSpec",
    "Prometheus",
    "RemoteTier",
    "RemoteType",
    "ReplicaRatio",
    "RoleAutoscaling",
    "RoleRouterPolicy",
    "RoleSpec",
    "RoleStatus",
    "RolloutSpec",
    "RolloutStrategy",
    "RouterGateway",
    "RouterPolicy",
    "RouterService",
    "RouterSpec",
    "RouterType",
    "SLASpec",
    "ScalingStatus",
    "ServiceType",
    "TLSMode",
    "TierPersistence",
    "TierStatus",
    "TierTLS",
    "TransferConnector",
    "TransferSpec",
    "TuningChange",
    "TuningSpec",
    "TuningStatus",
    "VolumeClaim",
]
