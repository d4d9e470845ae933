"""The KVServing object: metadata, spec, status."""

from collections.abc import Mapping

from pydantic import Field

from kvserving_operator.api import meta
from kvserving_operator.api.types import APIModel, Bool, Int, JSONValue, validated_by
from kvserving_operator.api.v1alpha1.autoscaling import AutoscalingSpec
from kvserving_operator.api.v1alpha1.engine import EngineSpec
from kvserving_operator.api.v1alpha1.kv_cache import KVCacheSpec
from kvserving_operator.api.v1alpha1.metrics import MetricsSpec
from kvserving_operator.api.v1alpha1.model import ModelSpec
from kvserving_operator.api.v1alpha1.network import NetworkPolicySpec
from kvserving_operator.api.v1alpha1.roles import DecodeSpec, PrefillSpec
from kvserving_operator.api.v1alpha1.rollout import RolloutSpec
from kvserving_operator.api.v1alpha1.router import RouterSpec
from kvserving_operator.api.v1alpha1.rules import OBJECT_RULES, SPEC_RULES
from kvserving_operator.api.v1alpha1.sla import SLASpec
from kvserving_operator.api.v1alpha1.status import KVServingStatus
from kvserving_operator.api.v1alpha1.transfer import TransferSpec
from kvserving_operator.api.v1alpha1.tuning import TuningSpec


class ObjectMeta(APIModel):
    """The part of metav1.ObjectMeta that the operator reads. Not part of the CRD's schema."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    generation: Int = 0
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


@validated_by(*SPEC_RULES)
class KVServingSpec(APIModel):
    """What is wanted."""

    suspend: Bool = Field(
        default=False,
        description="When true the operator reads and reports but changes nothing. Default false.",
    )
    model: ModelSpec = Field(description="The model.")
    engine: EngineSpec = Field(description="The inference engine, as far as both roles share it.")
    prefill: PrefillSpec | None = Field(
        default=None,
        description="The prefill role: engines that compute prompts and hand their KV to the "
        "decode role. Absent: the decode role serves whole requests and carries the KV tier "
        "itself.",
    )
    decode: DecodeSpec = Field(description="The decode role: engines that generate tokens.")
    kv_cache: KVCacheSpec = Field(
        default_factory=KVCacheSpec,
        description="The KV cache beyond the accelerators' own memory.",
    )
    transfer: TransferSpec = Field(
        default_factory=TransferSpec,
        description="How KV travels from prefill to decode. Ignored without a prefill section.",
    )
    router: RouterSpec = Field(
        default_factory=RouterSpec, description="The router in front of the engines."
    )
    rollout: RolloutSpec = Field(
        default_factory=RolloutSpec, description="How a change reaches the engines."
    )
    sla: SLASpec = Field(
        default_factory=SLASpec,
        description="Latency targets, for the autoscaler to aim at. Accepted, not used yet.",
    )
    autoscaling: AutoscalingSpec = Field(
        default_factory=AutoscalingSpec, description="How the operator changes replica counts."
    )
    tuning: TuningSpec = Field(
        default_factory=TuningSpec,
        description="How the operator turns the knobs of the cache at run time.",
    )
    metrics: MetricsSpec = Field(
        default_factory=MetricsSpec, description="Where the operator measures."
    )
    network_policy: NetworkPolicySpec = Field(
        default_factory=NetworkPolicySpec, description="Who may talk to the pods."
    )


@validated_by(*OBJECT_RULES)
class KVServing(APIModel):
    """A disaggregated LLM serving stack with a KV tier that is worth reading."""

    api_version: str = meta.API_VERSION
    kind: str = meta.KIND
    metadata: ObjectMeta
    spec: KVServingSpec = Field(description="What is wanted. The operator never writes it.")
    status: KVServingStatus = Field(
        default_factory=KVServingStatus, description="What is. Only the operator writes it."
    )

    @classmethod
    def parse(cls, obj: Mapping[str, JSONValue]) -> "KVServing":
        """Read an object as the apiserver returns it, or as a user wrote it (offline)."""
        return cls.model_validate(obj)
