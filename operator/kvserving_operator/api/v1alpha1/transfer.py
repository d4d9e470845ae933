"""``spec.transfer``: how KV travels from prefill to decode."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from kvserving_operator.api.types import (
    ATOMIC,
    APIModel,
    CELRule,
    Int,
    PassThrough,
    Unique,
    validated_by,
)


class TransferConnector(StrEnum):
    """The connector between the roles."""

    NIXL = "NIXL"


class BufferDevice(StrEnum):
    """Memory that NIXL registers."""

    CUDA = "CUDA"
    CPU = "CPU"


class LoadFailurePolicy(StrEnum):
    """What an engine does when KV did not arrive."""

    RECOMPUTE = "Recompute"
    FAIL = "Fail"


class PeerRestart(StrEnum):
    """What is done with decode engines after a prefill engine restarted."""

    OBSERVE = "Observe"
    RESTART_DECODE = "RestartDecode"


NixlBackend = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$", max_length=32)]


@validated_by(
    CELRule(
        rule="self.backends.all(b, self.backends.exists_one(c, c == b))",
        field=".backends",
        message="spec.transfer.nixl.backends holds a backend twice: remove one of them",
    )
)
class Nixl(APIModel):
    """Settings of NIXL."""

    backends: Annotated[
        tuple[NixlBackend, ...],
        Field(min_length=1, max_length=8),
        ATOMIC,
        Unique,
    ] = Field(default=("UCX",), description="NIXL backends, in order of preference. Default [UCX].")
    num_threads: Int = Field(
        default=4, ge=1, le=64, description="Threads of the NIXL backend. Default 4."
    )
    buffer_device: BufferDevice = Field(
        default=BufferDevice.CUDA,
        description="Memory that is registered for the transfer: CUDA, or CPU for engines that "
        "run on the CPU. Default CUDA.",
    )
    extra_config: PassThrough = Field(
        default_factory=dict,
        description="Further keys of the NIXL connector's kv_connector_extra_config, handed on "
        "as they are. Default empty.",
    )


class TransferSpec(APIModel):
    """The transfer; without a prefill section it is ignored."""

    connector: TransferConnector = Field(
        default=TransferConnector.NIXL,
        description="Connector between prefill and decode. NIXL is the only one. Default NIXL.",
    )
    nixl: Nixl = Field(default_factory=Nixl, description="Settings of NIXL.")
    load_failure_policy: LoadFailurePolicy = Field(
        default=LoadFailurePolicy.RECOMPUTE,
        description="What an engine does when KV did not arrive: Recompute the tokens, or Fail "
        "the request. A prefill role with prefillContext > 1 always fails the request. Default "
        "Recompute.",
    )
    peer_restart: PeerRestart = Field(
        default=PeerRestart.OBSERVE,
        description="What is done when a prefill engine restarted: Observe reports it, "
        "RestartDecode also replaces the decode engines that knew it. Default Observe.",
    )
