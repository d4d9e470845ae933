"""``spec.kvCache``: the KV beyond the accelerators' own memory."""

from enum import StrEnum

from pydantic import Field

from kvserving_operator.api.types import (
    APIModel,
    ByteQuantity,
    CELRule,
    Int,
    validated_by,
)
from kvserving_operator.api.v1alpha1.remote_tier import RemoteTier


class KVDtype(StrEnum):
    """Type of a KV element."""

    AUTO = "Auto"
    FP8 = "FP8"
    BF16 = "BF16"
    FP16 = "FP16"


class HotMode(StrEnum):
    """How the HOT share of GraniKV is chosen."""

    OFF = "Off"
    FIXED = "Fixed"
    AUTO = "Auto"


class LocalTier(APIModel):
    """The cache in the host memory of the engine pods."""

    size_per_replica: ByteQuantity | None = Field(
        default=None,
        description="Host memory of one replica for KV, for example 480Gi; each rank gets an "
        "equal part, and it is added to the pod's memory. Absent: none without a remote tier, "
        "else 5Gi for each rank, which stages what is loaded.",
    )


@validated_by(
    CELRule(
        rule="self.minPercent <= self.percent && self.percent <= self.maxPercent",
        field=".percent",
        message="spec.kvCache.hot.percent must lie between minPercent and maxPercent: change one "
        "of the three",
    )
)
class HotSpec(APIModel):
    """GraniKV on the engines that decode."""

    mode: HotMode = Field(
        default=HotMode.OFF,
        description="Off, Fixed (percent as written) or Auto (the tuner moves it between "
        'minPercent and maxPercent). Quote "Off": YAML 1.1 reads the bare word as false. Default '
        "Off.",
    )
    percent: Int = Field(
        default=20,
        ge=5,
        le=80,
        description="Share of the KV memory for the HOT pool in percent, 5 to 80; where Auto "
        "starts. Default 20.",
    )
    min_percent: Int = Field(
        default=5, ge=5, le=80, description="Lowest share in percent, 5 to 80. Default 5."
    )
    max_percent: Int = Field(
        default=80, ge=5, le=80, description="Highest share in percent, 5 to 80. Default 80."
    )


class KVCacheSpec(APIModel):
    """The KV cache."""

    dtype: KVDtype = Field(
        default=KVDtype.AUTO,
        description="Type of a KV element, equal on both roles: Auto, FP8, BF16 or FP16. A change "
        "starts a new tier epoch. Default Auto: the engine's own choice.",
    )
    chunk_tokens: Int = Field(
        default=256,
        ge=16,
        le=65536,
        multiple_of=16,
        description="Tokens of one chunk, the unit that is stored and loaded; a multiple of 16. A "
        "change starts a new tier epoch. Default 256.",
    )
    local: LocalTier = Field(
        default_factory=LocalTier, description="The cache in the host memory of the engine pods."
    )
    remote: RemoteTier = Field(default_factory=RemoteTier, description="The remote tier.")
    hot: HotSpec = Field(default_factory=HotSpec, description="GraniKV on the engines that decode.")
