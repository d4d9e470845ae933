"""``spec.tuning``: how the operator turns the knobs of the cache at run time."""

from pydantic import Field

from kvserving_operator.api.types import APIModel, CELRule, Duration, validated_by
from kvserving_operator.api.v1alpha1.autoscaling import AutomationMode


@validated_by(
    CELRule(
        rule="duration(self.interval) >= duration('10s')",
        field=".interval",
        message="spec.tuning.interval must be at least 10s: measurements need that long; raise it",
    )
)
class TuningSpec(APIModel):
    """The tuner."""

    mode: AutomationMode = Field(
        default=AutomationMode.OFF,
        description="Off stops all knobs, Recommend writes status and events only, Apply turns "
        'them. A value pinned in kvCache wins over it. Quote "Off": YAML 1.1 reads the bare word '
        "as false. Default Off.",
    )
    interval: Duration = Field(
        default="60s", description="Time between two looks at the measurements. Default 60s."
    )
