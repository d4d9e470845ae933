"""``spec.engine``: what both roles share of the inference engine."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import (
    MAP_BY_NAME,
    SET,
    APIModel,
    CELRule,
    EnvList,
    ExtraArgs,
    Image,
    LocalObjectReference,
    PassThrough,
    Unique,
    validated_by,
)


class EngineType(StrEnum):
    """The inference engine."""

    VLLM = "VLLM"
    SGLANG = "SGLang"


class EngineFeature(StrEnum):
    """What an engine image promises beyond the stock engine."""

    SHARDED_STORE = "ShardedStore"
    RANKED_REMOTE = "RankedRemote"
    ASYNC_LOADING = "AsyncLoading"
    LOAD_OR_RECOMPUTE = "LoadOrRecompute"
    GRANIKV = "GraniKV"


# A flag and its value in one element, as in "--max-num-seqs 8". JSON after "=" may hold spaces.
_ONE_PIECE = r"^--?[A-Za-z0-9_.-]+[ ]"


def one_piece_rule(where: str) -> CELRule:
    """Refuses ``--flag value`` written as one element of ``where``.extraArgs."""
    return CELRule(
        rule=f"!self.extraArgs.exists(a, a.matches('{_ONE_PIECE}'))",
        field=".extraArgs",
        message=f"{where}.extraArgs holds a flag and its value in one element: write them as two "
        "elements, or join them by =",
    )


@validated_by(
    CELRule(
        rule="self.type == oldSelf.type",
        field=".type",
        message="spec.engine.type cannot be changed: create a new KVServing with the other engine "
        "and delete this one",
    ),
    one_piece_rule("spec.engine"),
)
class EngineSpec(APIModel):
    """The engine."""

    type: EngineType = Field(
        default=EngineType.VLLM,
        description="Inference engine: VLLM or SGLang. It cannot be changed later. Default VLLM.",
    )
    image: Image = Field(description="Container image of the engine, for both roles.")
    version: Annotated[
        str,
        StringConstraints(
            pattern=r"^([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]*)?$", max_length=64
        ),
    ] = Field(
        default="",
        description="Version of the engine in the image, for example 0.33.0. It selects flags and "
        "rules; the agent reports the real one. Default empty: the version that the operator "
        "supports.",
    )
    features: Annotated[tuple[EngineFeature, ...], Field(max_length=16), SET, Unique] = Field(
        default=(),
        description="What the image promises beyond the stock engine: ShardedStore, RankedRemote, "
        "AsyncLoading, LoadOrRecompute, GraniKV. Each is checked against what the running engine "
        "reports; a broken promise is shown with the reason FeatureMissing. Default empty: a "
        "stock image.",
    )
    extra_args: ExtraArgs = Field(
        default=(),
        description="Arguments added to the engine's command line in both roles, one element per "
        "word. Flags on which the roles must agree (KV dtype, block size, speculation, "
        "quantization, tokenizer) are legal only here; flags that the operator owns are refused. "
        "Default empty.",
    )
    env: EnvList = Field(
        default=(),
        description="Environment of the engine container in both roles. Variables that the "
        "operator owns are refused. Default empty.",
    )
    pod_template: PassThrough = Field(
        default_factory=dict,
        description="A core/v1 PodTemplateSpec merged (strategic merge) into the pods of both "
        "roles, before the role's own. It may set neither args, image nor ports of the engine "
        "container. Default empty.",
    )
    cache_volume: PassThrough = Field(
        default_factory=dict,
        description="A core/v1 volume source for compile caches (Triton, FlashInfer, vLLM). "
        "Default empty: an emptyDir, so each new pod compiles again.",
    )
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...],
        Field(max_length=16),
        MAP_BY_NAME,
        Unique,
    ] = Field(
        default=(),
        description="Secrets with registry credentials, for the pods of every role. Default empty.",
    )
