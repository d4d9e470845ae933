"""``spec.rollout``: how a change reaches the engines."""

from enum import StrEnum

from pydantic import Field

from kvserving_operator.api.types import APIModel, Bool, IntOrPercent


class RolloutStrategy(StrEnum):
    """How engines of an old revision are replaced."""

    IN_PLACE = "InPlace"
    BLUE_GREEN = "BlueGreen"


class RolloutSpec(APIModel):
    """The rollout."""

    strategy: RolloutStrategy = Field(
        default=RolloutStrategy.IN_PLACE,
        description="InPlace drains and replaces replicas one after the other; BlueGreen builds "
        "a second set beside the first and needs accelerators for both. Default InPlace.",
    )
    paused: Bool = Field(
        default=False,
        description="When true no replica is replaced; what is missing is still created. Default "
        "false.",
    )
    max_unavailable: IntOrPercent = Field(
        default=1,
        description="How many replicas of a role may be away at once during a rollout: a number "
        "from 1, or a percentage of the role's replicas such as 25%, rounded down but at least "
        "1. Default 1.",
    )
