"""``spec.sla``: what the stack promises its clients."""

from pydantic import Field

from kvserving_operator.api.types import APIModel, CELRule, Duration, validated_by


@validated_by(
    *(
        CELRule(
            rule=f"!has(self.{name}) || duration(self.{name}) > duration('0s')",
            field=f".{name}",
            message=f"{name} must be above 0: raise it, or remove it for no target",
        )
        for name in ("p50", "p90", "mean")
    ),
    CELRule(
        rule="!has(self.p50) || !has(self.p90) || duration(self.p50) <= duration(self.p90)",
        field=".p50",
        message="p50 must not be above p90: lower the one or raise the other",
    ),
)
class LatencyTargets(APIModel):
    """Targets for one latency; every target that is given must hold."""

    p50: Duration | None = Field(
        default=None, description="Target for the median, for example 30s. Absent: no target."
    )
    p90: Duration | None = Field(
        default=None,
        description="Target for the 90th percentile, for example 70s. Absent: no target.",
    )
    mean: Duration | None = Field(
        default=None, description="Target for the mean, for example 30s. Absent: no target."
    )


class SLASpec(APIModel):
    """The service level."""

    ttft: LatencyTargets | None = Field(
        default=None,
        description="Time to the first token, from the arrival of a request, queueing included. "
        "Absent: no target.",
    )
    itl: LatencyTargets | None = Field(
        default=None,
        description="Time between two tokens of an answer, for example p90 50ms. Absent: no "
        "target.",
    )
