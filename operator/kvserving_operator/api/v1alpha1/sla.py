"""``spec.sla``: what the stack promises its clients."""

from pydantic import Field

from kvserving_operator.api.types import APIModel, Duration


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
