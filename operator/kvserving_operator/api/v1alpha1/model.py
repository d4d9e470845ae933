"""``spec.model``: which weights are served and where they come from."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from kvserving_operator.api.types import (
    ATOMIC,
    PRESERVE,
    AbsolutePath,
    APIModel,
    Bool,
    CELRule,
    Int,
    JSONValue,
    SecretKeySelector,
    Unique,
    validated_by,
)


class Attention(StrEnum):
    """How the model attends, which decides how its KV is split over ranks."""

    AUTO = "Auto"
    MLA = "MLA"
    GQA = "GQA"
    MHA = "MHA"
    HYBRID = "Hybrid"


class _VolumeSource(APIModel):
    """A mount whose other keys are a core/v1 volume source, written beside the known fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        json_schema_extra={PRESERVE: True},
    )

    @property
    def source(self) -> Mapping[str, JSONValue]:
        """The core/v1 volume source, empty when none was written."""
        return dict(self.model_extra or {})


class ModelCache(_VolumeSource):
    """Where downloaded weights are kept (HF_HOME)."""

    mount_path: AbsolutePath = Field(
        default="/models/hf",
        description="Path of the cache in the engine container, also its HF_HOME. Default "
        "/models/hf.",
    )


class ModelVolume(_VolumeSource):
    """Weights that lie on a volume."""

    path: AbsolutePath = Field(
        description="Path in the engine container where the volume is mounted and from which the "
        "engine loads the weights."
    )
    read_only: Bool = Field(
        default=True,
        description="Whether the volume is mounted read-only. Default true.",
    )


class HuggingFace(APIModel):
    """Access to the model hub."""

    token_secret_ref: SecretKeySelector | None = Field(
        default=None,
        description="Key of a Secret that holds the hub token; it becomes HF_TOKEN of the engines. "
        "Absent: no token.",
    )
    offline: Bool = Field(
        default=False,
        description="When true the engines never contact the hub (HF_HUB_OFFLINE=1), so the "
        "weights must be in the cache or on the volume. Default false.",
    )


ServedName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=128)
]


@validated_by(
    CELRule(
        rule="!has(self.volume) || self.volume.path != self.cache.mountPath",
        field=".volume.path",
        message="spec.model.volume.path equals spec.model.cache.mountPath: mount them at two "
        "different paths",
    ),
    CELRule(
        rule="self.servedNames.all(n, self.servedNames.exists_one(m, m == n))",
        field=".servedNames",
        message="spec.model.servedNames holds a name twice: remove one of them",
    ),
)
class ModelSpec(APIModel):
    """The model."""

    name: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9/][A-Za-z0-9._/:@=+-]*$", max_length=256)
    ] = Field(
        description="Identity of the model: a hub name such as zai-org/GLM-5.3-FP8 or an absolute "
        "path in the image. It is part of every cache key and of the tier epoch, and it is what "
        "the engine loads when volume is absent."
    )
    served_names: Annotated[tuple[ServedName, ...], Field(max_length=16), ATOMIC, Unique] = Field(
        default=(),
        description="Names under which the API serves the model. The first is the label of the "
        "metrics. Default empty: the model name alone.",
    )
    revision: Annotated[
        str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._/-]*)?$", max_length=128)
    ] = Field(
        default="",
        description="Branch, tag or commit of the weights on the hub. A change starts a new tier "
        "epoch, so new weights never read KV of old ones. Default empty: the hub's default "
        "branch.",
    )
    digest: Annotated[
        str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$", max_length=71)
    ] = Field(
        default="",
        description="Digest of the weights, written as sha256:HEX, for weights on a path, which "
        "have no revision. Part of the tier epoch. Default empty.",
    )
    attention: Attention = Field(
        default=Attention.AUTO,
        description="Attention of the model: MLA, GQA, MHA, Hybrid or Auto, which asks the engine "
        "once it runs. Must be written when kvCache.remote.type is not None, because it decides "
        "the number of tier instances; prefillContext > 1 implies MLA. Default Auto.",
    )
    max_model_len: Int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Longest sequence (prompt and answer) in tokens. Absent: the engine takes it "
        "from the model's own configuration.",
    )
    hugging_face: HuggingFace = Field(
        default_factory=HuggingFace, description="Access to the model hub."
    )
    cache: ModelCache = Field(
        default_factory=ModelCache,
        description="Cache for downloaded weights: mountPath and, beside it, any core/v1 volume "
        "source, for example persistentVolumeClaim. Without a source an emptyDir is used and each "
        "new pod downloads the weights again.",
    )
    volume: ModelVolume | None = Field(
        default=None,
        description="Volume that holds the weights: path and, beside it, any core/v1 volume "
        "source. Absent: the engine loads model.name.",
    )
