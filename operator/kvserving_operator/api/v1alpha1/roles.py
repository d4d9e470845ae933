"""``spec.prefill`` and ``spec.decode``: the two engine roles."""

from collections.abc import Mapping

from pydantic import Field

from kvserving_operator.api.types import (
    Annotations,
    APIModel,
    Bool,
    CELRule,
    Duration,
    EnvList,
    ExtraArgs,
    Int,
    Labels,
    OptionalImage,
    PassThrough,
    ResourceCount,
    ResourceName,
    validated_by,
)
from kvserving_operator.api.v1alpha1.engine import one_piece_rule


class Parallelism(APIModel):
    """How one replica of a role is split over accelerators."""

    prefill_context: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Prefill context parallel size: ranks that share one prompt. More than 1 is "
        "legal for MLA models on the prefill role only. Default 1.",
    )
    tensor: Int = Field(default=1, ge=1, le=256, description="Tensor parallel size. Default 1.")
    pipeline: Int = Field(default=1, ge=1, le=64, description="Pipeline parallel size. Default 1.")
    data: Int = Field(
        default=1,
        ge=1,
        le=1024,
        description="Data parallel size. With VLLM it multiplies the accelerators of a replica; "
        "with SGLang it is attention data parallelism inside the tensor ranks. Default 1.",
    )
    decode_context: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Decode context parallel size: ranks inside the tensor ranks over which the "
        "KV of one sequence is spread. Default 1.",
    )
    expert: Bool = Field(
        default=False,
        description="Whether mixture-of-experts layers are split by expert over the ranks of the "
        "replica. Default false.",
    )


class Accelerator(APIModel):
    """The extended resource that a replica asks for."""

    resource_name: ResourceName = Field(
        default="nvidia.com/gpu",
        description="Extended resource of the accelerators; the count follows from parallelism. "
        "Empty: none, for engines that run on the CPU. Default nvidia.com/gpu.",
    )


class RDMA(APIModel):
    """The RDMA devices of a replica."""

    resources: Mapping[str, ResourceCount] = Field(
        default_factory=dict,
        max_length=8,
        description="Extended resources of the RDMA devices of one pod, for example "
        '{"rdma/ib": "8"}. With any entry the pods get the capability IPC_LOCK. Default empty: '
        "KV travels over TCP.",
    )


class PrefillDrain(APIModel):
    """How a prefill replica is let go."""

    timeout: Duration = Field(
        default="120s",
        description="Longest time that a replica may take to finish its requests before it is "
        "stopped all the same. Default 120s.",
    )
    lease: Duration = Field(
        default="50s",
        description="Time that finished KV stays readable for decode engines after the last "
        "prefill of the replica. Default 50s.",
    )


class DecodeDrain(APIModel):
    """How a decode replica is let go."""

    timeout: Duration = Field(
        default="600s",
        description="Longest time that a replica may take to finish its streams before it is "
        "stopped all the same. Default 600s.",
    )
    lease: Duration = Field(
        default="0s",
        description="Not used by this role, which hands no KV on; it is here because both roles "
        "have the same fields. Default 0s.",
    )


@validated_by(
    CELRule(
        rule="duration(self.startupTimeout) >= duration('10s')",
        field=".startupTimeout",
        message="startupTimeout must be at least 10s, or no engine ever starts: raise it",
    )
)
class RoleSpec(APIModel):
    """The fields that both roles have."""

    replicas: Int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Number of replicas. Absent: 1, or what the autoscaler decided. Leave it out "
        "of Git when an autoscaler owns it; it has no default in the schema for that reason.",
    )
    parallelism: Parallelism = Field(
        default_factory=Parallelism,
        description="How one replica is split over accelerators. Default: one rank.",
    )
    nodes_per_replica: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of pods, each on a node of its own, that form one replica. Default 1.",
    )
    image: OptionalImage = Field(
        default="",
        description="Container image of this role. Engine and connector version must equal the "
        "other role's. Default empty: engine.image.",
    )
    extra_args: ExtraArgs = Field(
        default=(),
        description="Arguments added after engine.extraArgs for this role, one element per word. "
        "Default empty.",
    )
    env: EnvList = Field(
        default=(),
        description="Environment added to engine.env for this role; the same name wins over it. "
        "Default empty.",
    )
    resources: PassThrough = Field(
        default_factory=dict,
        description="The core/v1 ResourceRequirements of the engine itself. Local KV, shared "
        "memory and the agent are added to it. Default empty: 32Gi of memory per accelerator.",
    )
    accelerator: Accelerator = Field(
        default_factory=Accelerator, description="Which accelerators a replica asks for."
    )
    rdma: RDMA = Field(default_factory=RDMA, description="RDMA devices of a pod.")
    pod_template: PassThrough = Field(
        default_factory=dict,
        description="A core/v1 PodTemplateSpec merged (strategic merge) into the pods of this "
        "role, after engine.podTemplate. Default empty.",
    )
    workload_labels: Labels = Field(
        default_factory=dict,
        description="Labels for this role's pods and for its StatefulSet's own metadata, where "
        "Kueue reads its queue name. Domains that the operator owns are refused. Default empty.",
    )
    workload_annotations: Annotations = Field(
        default_factory=dict,
        description="Annotations for this role's pods and for its StatefulSet's own metadata. "
        "Domains that the operator owns are refused. Default empty.",
    )
    startup_timeout: Duration = Field(
        default="30m",
        description="Time that an engine may take from its start until it serves, loading of "
        "weights and compilation included; after it the container is restarted. Default 30m.",
    )


def _reserved_rules(where: str) -> tuple[CELRule, ...]:
    """Refuse keys in the domains on which selectors and hashes rest."""
    return tuple(
        CELRule(
            rule=f"!self.{name}.exists(k, k.matches('^(.*[.])?(kvserving[.]io|app[.]kubernetes[.]io"
            "|llm-d[.]ai)/'))",
            field=f".{name}",
            message=f"{where}.{name} sets a key in a domain that the operator owns (kvserving.io, "
            "app.kubernetes.io, llm-d.ai): remove it",
        )
        for name in ("workloadLabels", "workloadAnnotations")
    )


@validated_by(one_piece_rule("spec.prefill"), *_reserved_rules("spec.prefill"))
class PrefillSpec(RoleSpec):
    """The role that computes prompts and hands their KV on."""

    drain: PrefillDrain = Field(
        default_factory=PrefillDrain, description="How a replica is let go."
    )


@validated_by(
    CELRule(
        rule="self.parallelism.prefillContext == 1",
        field=".parallelism.prefillContext",
        message="spec.decode.parallelism.prefillContext must be 1: context parallel prefill works "
        "on the prefill role only; move it to spec.prefill.parallelism",
    ),
    one_piece_rule("spec.decode"),
    *_reserved_rules("spec.decode"),
)
class DecodeSpec(RoleSpec):
    """The role that generates tokens; without a prefill section it serves whole requests."""

    parallelism: Parallelism = Field(
        description="How one replica is split over accelerators; {} is one rank."
    )
    drain: DecodeDrain = Field(default_factory=DecodeDrain, description="How a replica is let go.")
