"""``status``: what the operator reports. Written by the operator alone, as one value.

Measured numbers are integers or, where the range asks for it, strings of two significant digits;
floats never enter the schema.
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.conditions import Condition
from kvserving_operator.api.types import ATOMIC, LIST_MAP_KEYS, LIST_TYPE, APIModel, Int


class TierStatus(APIModel):
    """The remote tier as it is."""

    instances: Int = Field(default=0, description="Instances that the spec asks for.")
    ready: Int = Field(
        default=0, description="Instances that engines can use: they take a value and give it back."
    )
    summary: str | None = Field(
        default=None,
        description="Ready and wanted instances for the printed table, such as 7/8. Programs read "
        "the numbers.",
    )
    epoch: str | None = Field(
        default=None,
        description="Epoch of the keys; KV of another model, revision, layout or chunk size has "
        "another epoch and is never read.",
    )


class RoleStatus(APIModel):
    """One role as it is."""

    replicas: Int = Field(default=0, description="Replicas that exist.")
    ready: Int = Field(default=0, description="Replicas that take requests.")
    updated: Int = Field(default=0, description="Replicas of the current revision.")
    draining: Int = Field(default=0, description="Replicas that finish their last requests.")
    summary: str | None = Field(
        default=None,
        description="Ready and wanted replicas for the printed table, such as 1/2. Programs read "
        "the numbers.",
    )
    revision: str | None = Field(
        default=None, description="Revision of the pods that the current spec asks for."
    )
    selector: str | None = Field(
        default=None,
        description="Label selector of the role's pods, in the text form that the scale "
        "subresource serves.",
    )


class CostModelStatus(APIModel):
    """The measured cost model; two significant digits."""

    recompute_tokens_per_second: Int | None = Field(
        default=None, description="Prompt tokens that a prefill replica computes per second."
    )
    bytes_per_token: Int | None = Field(default=None, description="Bytes of KV of one token.")
    bandwidth_bytes_per_second: str | None = Field(
        default=None, description="Bytes per second that a load gets from the tier, as a number."
    )
    engine_fixed_milliseconds: Int | None = Field(
        default=None, description="Fixed cost of a load that holds the engine, in milliseconds."
    )
    request_fixed_milliseconds: Int | None = Field(
        default=None,
        description="Fixed cost of a load that only its request waits for, in milliseconds.",
    )
    break_even_tokens_idle: Int | None = Field(
        default=None,
        description="Tokens from which loading is quicker than recomputing on an idle engine.",
    )
    break_even_tokens_now: Int | None = Field(
        default=None,
        description="Tokens from which loading is quicker than recomputing under today's load. "
        "Absent here and idle: no length is worth loading.",
    )
    hit_tokens: Int | None = Field(default=None, description="Mean tokens of a load.")
    busy_percent: Int | None = Field(
        default=None, description="Share of time that the engines are stepping, in percent."
    )
    engine_milliseconds_saved: Int | None = Field(
        default=None,
        description="Milliseconds of the engine that such a load saves; negative: it costs them.",
    )
    first_token_milliseconds_gained: Int | None = Field(
        default=None,
        description="Milliseconds by which its first token comes sooner under that load; negative: "
        "later.",
    )


class TuningChange(APIModel):
    """One decision of the tuner."""

    time: str = Field(description="When it was made, RFC 3339.")
    knob: str = Field(description="What was turned.")
    old: str | None = Field(default=None, description="The value before.")
    new: str | None = Field(default=None, description="The value after.")
    reason: str | None = Field(default=None, description="Why, with the numbers that decided.")


class TuningStatus(APIModel):
    """The knobs as they stand."""

    loading: str | None = Field(default=None, description="Loading mode in force.")
    hot_percent: Int | None = Field(default=None, description="HOT share in force, in percent.")
    reason: str | None = Field(default=None, description="Why the knobs stand as they do.")
    last_change: str | None = Field(
        default=None, description="When a knob was last turned, RFC 3339."
    )
    history: Annotated[tuple[TuningChange, ...], Field(max_length=20), ATOMIC] = Field(
        default=(), description="The last decisions, newest first, at most 20."
    )
    state: Annotated[str | None, StringConstraints(max_length=8192)] = Field(
        default=None,
        description="The operator's own: what its successor needs to go on where it was.",
    )


class ScalingStatus(APIModel):
    """What the autoscaler wants."""

    desired_prefill: Int | None = Field(default=None, description="Prefill replicas it wants.")
    desired_decode: Int | None = Field(default=None, description="Decode replicas it wants.")
    reason: str | None = Field(default=None, description="Why, with the numbers that decided.")


class GPUStatus(APIModel):
    """Accelerators."""

    requested: Int = Field(default=0, description="Accelerators that the pods ask for.")
    budget: Int | None = Field(
        default=None, description="The budget of the spec. Absent: no limit."
    )


class KVServingStatus(APIModel):
    """The status."""

    observed_generation: Int | None = Field(
        default=None, description="Generation of the spec that this status speaks about."
    )
    phase: str | None = Field(
        default=None,
        description="One word for the printed table, derived from the conditions: Pending, "
        "Progressing, Ready, Degraded, Suspended or Invalid. Programs read the conditions.",
    )
    kv_shards: Int | None = Field(
        default=None, description="Parts into which the KV of one sequence is split."
    )
    tier: TierStatus | None = Field(default=None, description="The remote tier. Absent: none.")
    prefill: RoleStatus | None = Field(default=None, description="The prefill role.")
    decode: RoleStatus | None = Field(default=None, description="The decode role.")
    model: CostModelStatus | None = Field(
        default=None, description="The measured cost model. Absent: nothing was measured yet."
    )
    tuning: TuningStatus | None = Field(default=None, description="The tuner.")
    scaling: ScalingStatus | None = Field(default=None, description="The autoscaler.")
    gpus: GPUStatus | None = Field(default=None, description="Accelerators.")
    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=32, json_schema_extra={LIST_TYPE: "map", LIST_MAP_KEYS: ["type"]}),
    ] = Field(
        default=(),
        description="What holds and what does not. Every True is good, except Reconciling and "
        "Stalled; Unknown means not measured yet; a condition whose subject is off is absent.",
    )
