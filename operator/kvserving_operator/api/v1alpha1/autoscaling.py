"""``spec.autoscaling``: how the operator changes replica counts."""

from enum import StrEnum

from pydantic import Field

from kvserving_operator.api.types import APIModel, CELRule, Int, validated_by


class AutomationMode(StrEnum):
    """How far an automatic part of the operator may go."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    APPLY = "Apply"


@validated_by(
    CELRule(
        rule="self.minReplicas <= self.maxReplicas",
        field=".minReplicas",
        message="minReplicas must not be above maxReplicas: lower the one or raise the other",
    )
)
class RoleAutoscaling(APIModel):
    """Limits for one role."""

    min_replicas: Int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Fewest replicas. At least 1: the router queues nothing, so nothing could "
        "wake an empty role. Default 1.",
    )
    max_replicas: Int = Field(ge=1, le=1000, description="Most replicas.")


@validated_by(
    CELRule(
        rule="self.min <= self.max",
        field=".min",
        message="min must not be above max: lower the one or raise the other",
    )
)
class ReplicaRatio(APIModel):
    """The band in which the ratio of the roles stays."""

    min: Int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Fewest prefill replicas for each decode replica. Default 1.",
    )
    max: Int = Field(ge=1, le=1000, description="Most prefill replicas for each decode replica.")


class AutoscalingSpec(APIModel):
    """The autoscaler."""

    mode: AutomationMode = Field(
        default=AutomationMode.OFF,
        description='Off, Recommend (writes status and events only) or Apply. Quote "Off": YAML '
        "1.1 reads the bare word as false. Default Off.",
    )
    prefill: RoleAutoscaling | None = Field(
        default=None,
        description="Limits for the prefill role. Absent: the role keeps its replicas.",
    )
    decode: RoleAutoscaling | None = Field(
        default=None,
        description="Limits for the decode role. Absent: the role keeps its replicas.",
    )
    gpu_budget: Int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Most accelerators that both roles together may ask for, a second set during "
        "a BlueGreen rollout included. Absent: no limit.",
    )
    ratio: ReplicaRatio | None = Field(
        default=None,
        description="Band for prefill replicas per decode replica. Absent: no band.",
    )
